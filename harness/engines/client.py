"""HTTP to an engine under a named deadline.

Every call is bounded by the deadline that its check set; when that passes, the error names it. A connection
that breaks asks `why_dead`, so that a check reports the rank that was killed and not a socket error.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx

from harness.containment import Deadline
from harness.engines.base import Answer, Completion, GenerateRequest, KVRows, ServerInfo
from harness.engines.wire import (
    STREAM_END,
    completion_body,
    first_model,
    generate_body,
    parse_answer,
    parse_completion,
    parse_kv_rows,
    parse_server_info,
    streamed_tokens,
)
from harness.errors import DeadlineError, EngineDiedError, EngineError, NoAnswerError, RequestRefusedError

# Without a check's deadline (a probe from the command line) no call may hang for ever.
DEFAULT_CALL_SECONDS = 60.0
# A burst of 257 requests opens that many sockets at once only where each is streamed; no limit of our own.
LIMITS = httpx.Limits(max_connections=None)
# One connection a call. The pool may close a kept one that it has just given to another thread (httpcore #1110),
# and an engine may close it as a request is on its way: both look like an engine that died.
HEADERS = {"connection": "close"}


# What a server says of an endpoint that it does not have.
NO_ENDPOINT = frozenset({404, 405, 501})

# What a front says when a rank of its engine is gone, and a router or one side of a pair when the other is.
_ENGINE_GONE = frozenset({502, 503})


def _unknown_death() -> str:
    return ""


class EngineClient:
    """Speaks to one engine. Safe to share between threads once `deadline` is set.

    Raises RequestRefusedError on an error status, EngineDiedError where the engine went away, NoAnswerError (one
    of those) where nothing listens, DeadlineError where the current deadline passed.
    """

    def __init__(self, url: str, *, why_dead: Callable[[], str] = _unknown_death) -> None:
        self.url = url.rstrip("/")
        self._why_dead = why_dead
        self._http = httpx.Client(base_url=self.url, limits=LIMITS, headers=HEADERS, trust_env=False)
        self._deadline: Deadline | None = None
        self._model: str | None = None
        self._model_lock = threading.Lock()

    def close(self) -> None:
        self._http.close()

    def beside(self, url: str) -> EngineClient:
        """A client of another server of the same launch: same deadline, same knowledge of what died."""
        client = EngineClient(url, why_dead=self._why_dead)
        client._deadline = self._deadline
        return client

    @contextmanager
    def deadline(self, scope: str, seconds: float) -> Iterator[None]:
        """Bound every call inside the block by one common deadline, named `scope`."""
        before, self._deadline = self._deadline, Deadline(scope=scope, seconds=seconds, clock=time.monotonic)
        try:
            yield
        finally:
            self._deadline = before

    def generate(self, request: GenerateRequest) -> Answer:
        """Answer one request."""
        return self.generate_batch([request])[0]

    def generate_batch(self, requests: list[GenerateRequest]) -> list[Answer]:
        """Answer several requests that are sent as one batch; answers come in their order."""
        body = self._json("POST", "/generate", generate_body(requests))
        answers = body if isinstance(body, list) else [body]
        if len(answers) != len(requests):
            raise EngineError(f"/generate answered {len(answers)} of {len(requests)} requests")
        return [parse_answer(answer) for answer in answers]

    def complete(
        self, prompt: str, *, max_new_tokens: int, stop: Sequence[str] = (), temperature: float = 0.0
    ) -> Completion:
        """Continue a text, by the OpenAI interface: the one that SGLang, vLLM and the reference engine share."""
        body = completion_body(
            prompt,
            model=self.served_model(),
            max_new_tokens=max_new_tokens,
            stop=stop,
            temperature=temperature,
        )
        return parse_completion(self._json("POST", "/v1/completions", body))

    def served_model(self) -> str:
        """The model's name as the engine wants to hear it, asked once; "" where no list of models is served.

        vLLM refuses a name that it does not serve, and older releases a request without one.
        """
        with self._model_lock:
            if self._model is None:
                try:
                    self._model = first_model(self._json("GET", "/v1/models"))
                except RequestRefusedError as error:
                    if error.status not in NO_ENDPOINT:
                        raise
                    self._model = ""
            return self._model

    def stream(self, request: GenerateRequest, *, rid: str) -> Iterator[int]:
        """Yield the number of tokens so far, once per streamed event. Closing the iterator aborts the request.

        An error that comes in the stream is a RequestRefusedError, a stream without its end an EngineError.
        """
        body = {**generate_body([request]), "stream": True, "rid": rid}
        with (
            self._errors(),
            self._http.stream("POST", "/generate", json=body, timeout=self._timeout()) as answer,
        ):
            if answer.status_code >= 400:
                answer.read()
            self._refuse(answer)
            for line in answer.iter_lines():
                if line == STREAM_END:
                    return
                if line.startswith("data: "):
                    yield streamed_tokens(json.loads(line.removeprefix("data: ")))
            raise EngineError(f"{self.url} broke a stream off: it ended without {STREAM_END!r}")

    def server_info(self) -> ServerInfo:
        return parse_server_info(self._json("GET", "/server_info"))

    def self_description(self) -> ServerInfo | None:
        """As `server_info`; None for a server that tells nothing of use: it may answer requests all the same."""
        try:
            return self.server_info()
        except EngineDiedError:
            raise
        except EngineError:
            return None

    def kv_rows(self) -> KVRows:
        return parse_kv_rows(self._json("GET", "/kv_rows"))

    def flush_cache(self) -> None:
        self._call("POST", "/flush_cache")

    def abort(self, rid: str) -> None:
        self._call("POST", "/abort_request", {"rid": rid})

    def health(self) -> None:
        """Raises unless every rank lives and answers."""
        self._call("GET", "/health")

    def wait_until(self, condition: Callable[[], bool], *, seconds: float, every_s: float = 0.05) -> bool:
        """Ask again until `condition` holds; False when it did not within `seconds`.

        A remote state offers no event to wait for, hence the polling.
        """
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() >= end:
                return False
            time.sleep(every_s)
        return True

    def _json(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        answer = self._call(method, path, body)
        try:
            return answer.json()
        except ValueError as error:
            raise EngineError(f"{path} answered no JSON: {answer.text:.200}") from error

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        with self._errors():
            answer = self._http.request(method, path, json=body, timeout=self._timeout())
        self._refuse(answer)
        return answer

    def _timeout(self) -> float:
        if self._deadline is None:
            return DEFAULT_CALL_SECONDS
        self._deadline.require()
        return self._deadline.remaining()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except httpx.TimeoutException as error:
            deadline = self._deadline
            scope = deadline.scope if deadline else "request"
            raise DeadlineError(scope, deadline.seconds if deadline else DEFAULT_CALL_SECONDS) from error
        except httpx.ConnectError as error:
            if why := self._why_dead():
                raise EngineDiedError(why) from error
            raise NoAnswerError(f"{self.url} cannot be reached: nothing answers there ({error})") from error
        except httpx.TransportError as error:
            why = self._why_dead() or f"{self.url} cannot be reached: {error}"
            raise EngineDiedError(why) from error
        except httpx.DecodingError as error:
            raise EngineError(f"{self.url} sent a body that cannot be unpacked: {error}") from error

    def _refuse(self, answer: httpx.Response) -> None:
        if answer.status_code in _ENGINE_GONE and (why := self._why_dead()):
            # The front outlives a rank by a moment and says so; its launcher knows what ended the rank.
            raise EngineDiedError(why)
        if answer.status_code >= 400:
            raise RequestRefusedError(_message(answer), status=answer.status_code)


def _message(answer: httpx.Response) -> str:
    """The engine's own words, from the shapes that FastAPI and OpenAI use."""
    try:
        body = answer.json()
    except ValueError:
        return f"{answer.request.url.path}: status {answer.status_code}: {answer.text:.300}"
    if isinstance(body, dict):
        found = body.get("error", body.get("detail", body))
        body = found.get("message", found) if isinstance(found, dict) else found
    return f"{answer.request.url.path}: status {answer.status_code}: {body}"
