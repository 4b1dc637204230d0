"""The decode engine's stream on its way to the client.

Once its first event has gone to the client there is no other attempt: what happens then is told as an event with an
error, and the stream ends. A stream without `[DONE]` at its end was not a whole answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from harness.refengine.http_errors import describe_error
from harness.refengine.router.attempt import Reply
from harness.refengine.router.events import error_event, is_end
from harness.refengine.router.flight import EndedError, Ending, Flight
from harness.refengine.router.sides import in_words

# Status and words of a request's end, where it was ended from outside.
Explain = Callable[[Flight, Ending], Awaitable[tuple[int, str]]]


class RelayResponse(StreamingResponse):
    """A stream to a client. However it ends, by the client's leaving too, the engine's call is closed and `over`
    is called; `broken` as well, once, where the answer is not whole."""

    def __init__(
        self,
        reply: Reply,
        *,
        flight: Flight,
        explain: Explain,
        over: Callable[[Flight], None],
        broken: Callable[[], None],
    ) -> None:
        super().__init__(self._events(), media_type="text/event-stream")
        self._reply = reply
        self._flight = flight
        self._explain = explain
        self._over = over
        self._broken = broken

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._over(self._flight)
            await self._reply.close()

    async def _events(self) -> AsyncIterator[bytes]:
        events, flight = self._reply.events, self._flight
        assert events is not None
        event: bytes | None = self._reply.body
        last = b""
        try:
            while event is not None:
                last = event
                yield event
                event = await flight.unless_ended(events.next())
        except httpx.HTTPError as error:
            yield self._error(502, f"{flight.waiting[0]}: {in_words(error)} in the middle of the answer")
        except EndedError as error:
            yield self._error(*await self._explain(flight, error.ending))
        else:
            if not is_end(last):
                yield self._error(502, f"{flight.waiting[0]}: the stream ended before the answer did")

    def _error(self, status: int, words: str) -> bytes:
        self._broken()
        return error_event(describe_error(status, words))
