"""A server with OpenAI's `/v1/completions` over real sockets, which answers questions as well as it is told to.

Whatever it does wrong it does to the same questions each time: a fault is drawn from the prompt, not from the
order in which requests happen to arrive. `dies_at` and `hangs_at` count requests.
"""

from __future__ import annotations

import json
import random
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from harness.checks.questions import QuestionPlan

MODEL = "fake/sums-1"


@dataclass(kw_only=True)
class FakeCompletions:
    """The script of one server, and what it saw. Shares are of all questions, and faults exclude each other."""

    right: Mapping[str, str]
    wrong: float = 0.0
    refused: float = 0.0  # status 500
    cut: float = 0.0  # stopped by the token limit, after the right answer
    mute: float = 0.0  # ends without a number
    aborted: float = 0.0  # status 200 and the finish reason "abort"
    garbled: float = 0.0  # status 200 and no JSON
    choiceless: float = 0.0  # status 200 and no choices
    dies_at: int | None = None  # this request and all that follow find nobody
    hangs_at: int | None = None  # this request is never answered
    turned: int = 1  # requests are answered in groups of so many, the last of a group first
    seed: int = 0
    tells_models: bool = True
    info: dict[str, Any] = field(
        default_factory=lambda: {"max_total_num_tokens": 4096, "tp_size": 4, "dcp_size": 4, "page_size": 4}
    )
    bodies: list[dict[str, Any]] = field(default_factory=list)
    models_asked: int = 0
    connections: int = 0
    in_flight: int = 0
    peak: int = 0

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._answered: set[int] = set()
        self.released = threading.Event()

    @classmethod
    def of(cls, plan: QuestionPlan, **faults: Any) -> FakeCompletions:
        """One that knows all answers of a plan."""
        return cls(right={item.prompt: item.expected for item in plan.items}, **faults)

    def fault(self, prompt: str) -> str:
        """What goes wrong with this question, "" for nothing."""
        names = ("wrong", "refused", "cut", "mute", "aborted", "garbled", "choiceless")
        shares = [getattr(self, name) for name in names]
        draw = random.Random(f"fake:{self.seed}:{prompt}")
        return draw.choices(["", *names], weights=[1 - sum(shares), *shares])[0]

    def arrive(self, body: dict[str, Any]) -> int:
        """Count a request in; its number, from 1."""
        with self._changed:
            self.bodies.append(body)
            self.in_flight += 1
            self.peak = max(self.peak, self.in_flight)
            return len(self.bodies)

    def leave(self) -> None:
        with self._changed:
            self.in_flight -= 1

    def wait_turn(self, number: int) -> None:
        """Return once the group of `number` is complete and all later ones of it have been answered."""
        last = -(-number // self.turned) * self.turned
        with self._changed:
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: len(self.bodies) >= last and self._answered.issuperset(range(number + 1, last + 1)),
                timeout=30,
            )

    def answered(self, number: int) -> None:
        with self._changed:
            self._answered.add(number)
            self._changed.notify_all()

    def answer(self, prompt: str) -> tuple[int, bytes]:
        fault, right = self.fault(prompt), self.right[prompt]
        if fault == "refused":
            return 500, b'{"error": {"message": "cosmic ray"}}'
        if fault == "garbled":
            return 200, b"<html>"
        text = f" Let me see.\n#### {right}"
        if fault == "wrong":
            text = f" That makes\n#### {int(right) + 1}"
        elif fault == "mute":
            text = " I do not know."
        reason = {"cut": "length", "aborted": "abort"}.get(fault, "stop")
        choices = [{"index": 0, "text": text, "finish_reason": reason, "logprobs": None}]
        usage = {"prompt_tokens": len(prompt.split()), "completion_tokens": len(text.split())}
        body = {"object": "text_completion", "model": MODEL, "usage": usage}
        return 200, json.dumps({**body, "choices": [] if fault == "choiceless" else choices}).encode()


class _Server(ThreadingHTTPServer):
    """Knows its connections, to be able to die with all of them."""

    daemon_threads = True
    # All of a batch connect at once.
    request_queue_size = 256

    def __init__(self, script: FakeCompletions) -> None:
        self.script = script
        self.open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self.open.add(connection)
        self.script.connections += 1
        return connection, address

    def die(self) -> None:
        """As a killed process goes: no listener, and every connection is cut."""
        for connection in (self.socket, *self.open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.shutdown()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left, or whom `die` cut off."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # An answer in two small packets would wait 40 ms for the client's acknowledgement of the first.
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        script = self.server.script
        if self.path == "/v1/models" and script.tells_models:
            script.models_asked += 1
            names = [{"id": MODEL, "object": "model"}, {"id": "an-adapter", "object": "model"}]
            self._send(200, json.dumps({"object": "list", "data": names}).encode())
        elif self.path == "/server_info":
            self._send(200, json.dumps(script.info).encode())
        else:
            self._send(200 if self.path in ("/health", "/flush_cache") else 404, b"{}")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])) or b"{}")
        if self.path == "/v1/completions":
            self._complete(body)
        else:
            self.do_GET()

    def _complete(self, body: dict[str, Any]) -> None:
        script = self.server.script
        number = script.arrive(body)
        try:
            if script.dies_at is not None and number >= script.dies_at:
                self.server.die()
                return
            if number == script.hangs_at:
                script.released.wait(60)
            script.wait_turn(number)
        finally:
            # Before the answer: whoever has read it may ask the next question at once.
            script.leave()
        self._send(*script.answer(body["prompt"]))
        script.answered(number)

    def _send(self, status: int, raw: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving_completions(script: FakeCompletions) -> Iterator[str]:
    """The URL of a server that follows `script` until the block ends."""
    server = _Server(script)
    port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        script.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
