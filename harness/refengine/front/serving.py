"""Running a call for an HTTP client: to its end, or as a stream of events, and never longer than the client
stays.

An HTTP call that is refused has had no answer yet, so a stream begins only once its first event is there:
until then an error is still a status code.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.status import HTTP_502_BAD_GATEWAY, HTTP_503_SERVICE_UNAVAILABLE
from starlette.types import Receive, Scope, Send

from harness.errors import HandoverError
from harness.refengine.front.call import Call, Generation
from harness.refengine.front.link import EngineGoneError
from harness.refengine.http_errors import describe_error

T = TypeVar("T")


DONE = b"data: [DONE]\n\n"


class ClientGoneError(Exception):
    """The client has left; nobody reads the answer. Never leaves the front."""


class AsciiJSONResponse(JSONResponse):
    """JSON that any string fits in: an error may quote what no UTF-8 can carry."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def error_body(status: int, message: str) -> dict[str, Any]:
    """The one shape of every error, as JSON values."""
    return {"error": describe_error(status, message)}


class EventStream(StreamingResponse):
    """Server-sent events of a call. Ends the call however the response ends, by the client's leaving too."""

    def __init__(self, call: Call, events: AsyncIterator[bytes]) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._call = call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._call.close()


async def complete(request: Request, call: Call) -> list[Generation]:
    """All answers, once they have ended. Raises ClientGoneError when the client leaves first."""

    async def run() -> list[Generation]:
        await call.start()
        async for _ in call.progress():
            pass
        return call.generations

    try:
        return await _while_connected(request, run())
    finally:
        call.close()


async def stream(
    request: Request,
    call: Call,
    *,
    event: Callable[[Generation], dict[str, Any]],
    last: Callable[[], list[dict[str, Any]]] = list,
) -> Response:
    """Answer with an event for each step of progress, then those of `last`, then `[DONE]`.

    A handover that fails later, and an engine that dies, end it with the error as its last event. Raises what
    `Call.start` and the first step raise, and ClientGoneError.
    """
    progress = call.progress()

    async def begin() -> bytes:
        await call.start()
        return encode(event(await anext(progress)))

    async def events(first: bytes) -> AsyncIterator[bytes]:
        async with aclosing(progress):
            yield first
            try:
                async for generation in progress:
                    yield encode(event(generation))
            except HandoverError as error:
                yield encode(error_body(HTTP_502_BAD_GATEWAY, str(error)))
                return
            except EngineGoneError as error:
                yield encode(error_body(HTTP_503_SERVICE_UNAVAILABLE, str(error)))
                return
            for message in last():
                yield encode(message)
            yield DONE

    try:
        first = await _while_connected(request, begin())
    except BaseException:
        call.close()
        raise
    return EventStream(call, events(first))


def encode(message: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(message, allow_nan=False, separators=(",", ":")).encode() + b"\n\n"


async def _while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Run `work`, but cancel it when the client disconnects."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGoneError
        return working.result()
    finally:
        leaving.cancel()
        working.cancel()


async def _disconnected(request: Request) -> None:
    """Returns when the client has closed the connection; its body has been read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
