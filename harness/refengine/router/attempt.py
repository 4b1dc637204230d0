"""One attempt of one request on one pair of engines: both calls at once, until the decode side answers.

Failure rule: as soon as one side fails, the other's call is ended and the attempt raises what the first one said. Where
that was a complaint of the other side, its own answer is waited for first, and comes first.
Whoever is cancelled here is cancelled with both calls closed, which aborts the request on both engines.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

from harness.refengine.router.bodies import ClientBody, Rooms, aborted_in
from harness.refengine.router.events import EventSplitter, error_of
from harness.refengine.router.flight import Flight, cancel
from harness.refengine.router.policy import Cause, Failure, Pair, answered, decisive, unless_held
from harness.refengine.router.sides import Engine, in_words
from harness.topology import Side

# How long a side may take to confirm that it has given a request up. An abort takes one step of the engine.
RELEASE_S = 2.0
# How long a side's own answer is waited for once the other has complained of it. They part ways within milliseconds,
# on a machine under load within a second.
ECHO_S = 2.0
# How long the prefill side's answer may stay away once the decode side has answered: nothing is computed meanwhile.
SETTLE_S = 10.0
ABORT = "/abort_request"


class AttemptError(Exception):
    """The attempt failed, as `failure` tells. Never leaves the router."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(str(failure))


class Events:
    """The events of a decode engine's stream, one at a time."""

    def __init__(self, response: httpx.Response) -> None:
        self._pieces: AsyncIterator[bytes] = response.aiter_raw()
        self._splitter = EventSplitter()
        self._whole: list[bytes] = []

    async def next(self) -> bytes | None:
        """None at the end of the stream. Raises httpx.HTTPError where the connection breaks."""
        while not self._whole:
            piece = await anext(self._pieces, None)
            if piece is None:
                return None
            self._whole = self._splitter.feed(piece)
        return self._whole.pop(0)


@dataclass(slots=True, kw_only=True)
class Reply:
    """The decode engine's answer: `body` whole, or the first event of `events`. The caller closes it."""

    response: httpx.Response
    body: bytes
    events: Events | None = None

    async def close(self) -> None:
        await self.response.aclose()


@dataclass(slots=True, kw_only=True)
class Attempt:
    """What an attempt works with. `left` keeps the prefill calls that end after their decode call."""

    http: httpx.AsyncClient
    pair: Pair
    engines: tuple[Engine, Engine]
    body: ClientBody
    flight: Flight
    left: set[asyncio.Task[bytes]]
    rooms: Rooms = field(init=False)

    def __post_init__(self) -> None:
        self.rooms = self.body.rooms()

    async def run(self) -> Reply:
        """Raises AttemptError."""
        self.flight.waiting = list(self.engines)
        self.flight.orders = self.body.orders(self.rooms)
        prefill = asyncio.create_task(self._prefill())
        decode = asyncio.create_task(self._decode())
        try:
            reply = await self._outcome(prefill, decode)
        except BaseException as error:
            # An engine knows the request by the client's name, and refuses another of that name while it has it.
            if isinstance(error, AttemptError) and error.failure.retried and self.body.rids:
                await self._release((prefill, decode))
            await _end(prefill, decode)
            raise
        self.flight.waiting = [self.engines[1]]
        self._leave(prefill)
        return reply

    async def _outcome(self, prefill: asyncio.Task[bytes], decode: asyncio.Task[Reply]) -> Reply:
        """The decode side's answer; raises AttemptError when either side fails before."""
        sides: dict[asyncio.Task[Any], Side] = {prefill: Side.PREFILL, decode: Side.DECODE}
        await self._wait(sides)
        if prefill.done() and _failure_of(prefill) is None:
            await self._wait({decode: Side.DECODE})
        if {failure.cause for failure in _failures(sides)} == {Cause.ECHO}:
            await self._wait(sides, return_when=asyncio.ALL_COMPLETED, timeout=ECHO_S)
        # A decode side that has answered had all it needs, whatever becomes of the prefill side.
        if decode.done() and _failure_of(decode) is None:
            return decode.result()
        failures = _failures(sides)
        if prefill.done() and _failure_of(prefill) is None and aborted_in(prefill.result()):
            failures.append(self._failure(Side.PREFILL, Cause.ABORTED, "the request was aborted there"))
        silent = next((side for task, side in sides.items() if not task.done()), None)
        raise AttemptError(decisive(failures, silent=silent))

    async def _wait(
        self,
        sides: Mapping[asyncio.Task[Any], Side],
        *,
        return_when: str = asyncio.FIRST_COMPLETED,
        timeout: float | None = None,
    ) -> None:
        """As asyncio.wait; the flight knows for whom."""
        pending = [side for task, side in sides.items() if not task.done()]
        self.flight.waiting = [engine for engine in self.engines if engine.side in pending]
        await asyncio.wait(sides, return_when=return_when, timeout=timeout)

    async def _prefill(self) -> bytes:
        response = await self._send(Side.PREFILL, self.body.for_prefill(self.rooms))
        try:
            return await self._read(Side.PREFILL, response)
        finally:
            await response.aclose()

    async def _decode(self) -> Reply:
        content = self.body.for_decode(self.rooms, prefill_url=self.pair.prefill)
        response = await self._send(Side.DECODE, content)
        try:
            if not self.body.stream or response.is_error:
                return Reply(response=response, body=await self._read(Side.DECODE, response))
            events = Events(response)
            return Reply(response=response, body=await self._first_event(events), events=events)
        except BaseException:
            await response.aclose()
            raise

    async def _send(self, side: Side, content: bytes) -> httpx.Response:
        url = f"{self.pair.url(side)}{self.body.endpoint.value}"
        with self._breaks(side):
            return await self.http.send(self.http.build_request("POST", url, content=content), stream=True)

    async def _read(self, side: Side, response: httpx.Response) -> bytes:
        with self._breaks(side):
            body = await response.aread()
        if response.is_error:
            raise self._answered(side, status=response.status_code, body=body)
        return body

    async def _first_event(self, events: Events) -> bytes:
        """An error that comes first is as good as a status: the client has seen nothing yet."""
        with self._breaks(Side.DECODE):
            event = await events.next()
        if event is None:
            raise self._broken(Side.DECODE, "the stream ended before its first event")
        if (told := error_of(event)) is not None:
            code = told.get("code")
            status = code if type(code) is int and 400 <= code < 600 else 502
            body = json.dumps({"error": told}).encode()
            raise self._answered(Side.DECODE, status=status, body=body)
        return event

    @contextmanager
    def _breaks(self, side: Side) -> Iterator[None]:
        try:
            yield
        except httpx.HTTPError as error:
            raise self._broken(side, in_words(error)) from error

    def _answered(self, side: Side, *, status: int, body: bytes) -> AttemptError:
        failure = answered(self.pair, side, status=status, body=body)
        named_again = self.body.rids and self.flight.attempts > 1
        return AttemptError(unless_held(failure) if named_again else failure)

    def _broken(self, side: Side, words: str) -> AttemptError:
        return AttemptError(self._failure(side, Cause.BROKEN, words))

    def _failure(self, side: Side, cause: Cause, words: str) -> Failure:
        return Failure(cause=cause, pair=self.pair, side=side, words=words)

    async def _release(self, tasks: tuple[asyncio.Task[Any], ...]) -> None:
        """Have the side that still works give the request up, and wait until it has: its call ends then."""
        with suppress(TimeoutError, httpx.HTTPError):
            async with asyncio.timeout(RELEASE_S):
                for engine, task in zip(self.engines, tasks, strict=True):
                    if task.done():
                        continue
                    for rid in self.body.rids:
                        await self.http.post(f"{engine.url}{ABORT}", json={"rid": rid})
                    await asyncio.wait({task})

    def _leave(self, prefill: asyncio.Task[bytes]) -> None:
        """Let the prefill call end by itself: closing it would abort a handover that is complete."""

        def forget(task: asyncio.Task[bytes]) -> None:
            limit.cancel()
            self.left.discard(task)
            if not task.cancelled():
                _failure_of(task)

        limit = asyncio.get_running_loop().call_later(SETTLE_S, prefill.cancel)
        self.left.add(prefill)
        prefill.add_done_callback(forget)


def _failure_of(task: asyncio.Task[Any]) -> Failure | None:
    """None for a side that succeeded. What is no failure of an engine is one of the router, and is raised."""
    error = task.exception()
    if error is None:
        return None
    if isinstance(error, AttemptError):
        return error.failure
    raise error


def _failures(tasks: Iterable[asyncio.Task[Any]]) -> list[Failure]:
    """Of those that are over."""
    return [failure for task in tasks if task.done() and (failure := _failure_of(task)) is not None]


async def _end(prefill: asyncio.Task[bytes], decode: asyncio.Task[Reply]) -> None:
    """Close both calls."""
    await cancel(prefill, decode)
    if not decode.cancelled() and decode.exception() is None:
        await decode.result().close()
