"""Requests in flight: each in a thread of its own, so that a check can look at the engine while they run."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from harness.engines import EngineClient, GenerateRequest
from harness.errors import HarnessError


class Flight:
    """One request: streamed, so that its first token is seen. `tokens` counts those that came, `error` is what it
    ended with if not with an answer; both are final once it has ended."""

    def __init__(self, client: EngineClient, request: GenerateRequest, *, rid: str) -> None:
        self.request = request
        self.rid = rid
        self.tokens = 0
        self.error: HarnessError | None = None
        self._client = client
        self._first = threading.Event()
        self._thread = threading.Thread(target=self._run, name=rid, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait_first_token(self) -> None:
        """Raises what the request ended with; returns once a token has come. Ends with the client's deadline."""
        self._first.wait()
        if self.error is not None:
            raise self.error

    @property
    def answering(self) -> bool:
        """Whether its first token has come, or it has ended without one."""
        return self._first.is_set()

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def join(self, seconds: float | None = None) -> None:
        """Wait until it has ended, or so long."""
        self._thread.join(seconds)

    def end(self) -> None:
        """Abort it if it runs, and wait for its end."""
        if self._thread.is_alive():
            self._client.abort(self.rid)
        self._thread.join()

    def _run(self) -> None:
        try:
            for count in self._client.stream(self.request, rid=self.rid):
                self.tokens = count
                if count > 0:
                    self._first.set()
        except HarnessError as error:
            self.error = error
        finally:
            self._first.set()


@contextmanager
def in_flight(client: EngineClient, requests: Mapping[str, GenerateRequest]) -> Iterator[None]:
    """All of these, by rid, each past its first output token; aborted on the way out."""
    flights = [Flight(client, request, rid=rid) for rid, request in requests.items()]
    try:
        for flight in flights:
            flight.start()
        for flight in flights:
            flight.wait_first_token()
        yield
    finally:
        for flight in flights:
            flight.end()
