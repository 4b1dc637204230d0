"""A pair that can be killed without processes: a router over a real socket whose streams end as a script says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fake_engine import FakeEngine

from harness.engines import Answer, EngineClient, GenerateRequest, LaunchSpec
from harness.topology import ParallelConfig, Side

# What a stream writes once the kill has come; the connection is closed after it.
Ending = Callable[[int], bytes]


def event(**body: Any) -> bytes:
    return f"data: {json.dumps(body)}\n\n".encode()


def tokens(count: int) -> bytes:
    return event(meta_info={"completion_tokens": count})


DONE = b"data: [DONE]\n\n"


def answered(wanted: int) -> bytes:
    return tokens(wanted) + DONE


def told_of_an_error(wanted: int) -> bytes:
    return event(error={"message": "the decode engine has gone", "code": 502}) + DONE


@dataclass
class KillableEngine(FakeEngine):
    """The side that is looked at until requests have come, or drained when its peer was killed."""

    spec: LaunchSpec = field(
        default_factory=lambda: LaunchSpec(
            kind="reference", model="m", parallel=ParallelConfig(tp_size=4, dcp_size=4)
        )
    )

    @property
    def client(self) -> KillableEngine:
        return self

    def wait_until(self, condition: Callable[[], bool], *, seconds: float, every_s: float = 0.05) -> bool:
        return EngineClient("http://nobody.invalid").wait_until(condition, seconds=seconds, every_s=every_s)


@dataclass
class KillablePair:
    """Streams wait for `kill` and then end as `ending` says; the rest is told what happened to it in `did`."""

    url: str
    killed: threading.Event
    faults: frozenset[str] = frozenset()
    survivor_faults: frozenset[str] = frozenset()
    did: list[str] = field(default_factory=list)

    @property
    def client(self) -> KillablePair:
        return self

    def engine(self, side: Side) -> KillableEngine:
        # Requests have come as soon as somebody looks; the survivor is the other side's.
        dead = self.killed.is_set()
        return KillableEngine(faults=self.survivor_faults if dead else frozenset({"stuck"}))

    def generate(self, request: GenerateRequest) -> Answer:
        other = "other-answer" in self.faults and any(told.startswith("restart") for told in self.did)
        return FakeEngine(faults=frozenset({"other-token"} if other else ())).generate(request)

    def wait_until(self, condition: Callable[[], bool], *, seconds: float, every_s: float = 0.05) -> bool:
        return condition()

    def kill(self, side: Side, *, rank: int | None = None) -> str:
        self.did.append(f"kill {side} {rank}")
        self.killed.set()
        return "" if "immortal" in self.faults else "rank 3 was killed by SIGKILL"

    def restart(self, side: Side) -> None:
        self.did.append(f"restart {side}")
        self.killed.clear()


@contextmanager
def killable(ending: Ending, **pair: Any) -> Iterator[KillablePair]:
    """A pair whose router ends every stream as `ending` says, given the tokens that were asked for."""
    killed = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            killed.wait(30)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(ending(body["sampling_params"]["max_new_tokens"]))

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield KillablePair(url=f"http://127.0.0.1:{server.server_port}", killed=killed, **pair)
    finally:
        server.shutdown()
        server.server_close()
