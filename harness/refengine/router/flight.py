"""One client's request under way: its deadline, and everything else that may end it from outside.

Whatever the router waits for on a client's behalf, it waits for with `unless_ended`: when the request's time is
up, the client has left or the router stops, the work is cancelled, which closes the calls to both engines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from enum import StrEnum
from typing import Any, TypeVar

from harness.refengine.router.bodies import is_covered
from harness.refengine.router.policy import Failure
from harness.refengine.router.sides import Engine

T = TypeVar("T")


class Ending(StrEnum):
    """Why a request ends that no engine has ended."""

    DEADLINE = "deadline"
    CLIENT_GONE = "client gone"
    STOPPING = "stopping"


class EndedError(Exception):
    """The request was ended from outside. Never leaves the router."""

    def __init__(self, ending: Ending) -> None:
        self.ending = ending
        super().__init__(ending.value)


async def cancel(*tasks: asyncio.Task[Any]) -> None:
    """Cancel and wait until they are over, whatever they end with.

    Not by `gather`: that hands each further cancellation of the caller on to the tasks, and Starlette cancels at every
    turn of the loop, so that none of them would come to closing its connection.
    """
    for task in tasks:
        task.add_done_callback(_take_note)
        task.cancel()
    await asyncio.wait(tasks)


def _take_note(task: asyncio.Task[Any]) -> None:
    """An exception that nobody asks for is complained of by the loop."""
    if not task.cancelled():
        task.exception()


class Flight:
    """`waiting` are the engines whose answer is awaited now, `met` how earlier attempts failed. `aborted` is set
    once a client has aborted the request: it is not tried again. `names` are those of its prompts, `orders` the names
    that abort the attempt under way. `landed` is done once the request is over."""

    def __init__(self, *, names: frozenset[str], seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self.names = names
        self.orders: tuple[str, ...] = ()
        self.aborted = False
        self.landed: asyncio.Future[None] = loop.create_future()
        self.attempts = 0
        self.met: list[Failure] = []
        self.waiting: list[Engine] = []
        self._ended: asyncio.Future[Ending] = loop.create_future()
        self._timer = loop.call_later(seconds, self.end, Ending.DEADLINE)

    def end(self, ending: Ending) -> None:
        """The first one counts."""
        if not self._ended.done():
            self._ended.set_result(ending)

    def land(self) -> None:
        """The request is over."""
        self._timer.cancel()
        self.landed.set_result(None)

    async def unless_ended(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`. Raises what it raises, and EndedError, once `work` is cancelled and over."""
        task = asyncio.ensure_future(work)
        try:
            either: set[asyncio.Future[Any]] = {task, self._ended}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise EndedError(self._ended.result())
        finally:
            await cancel(task)


class Flights:
    """All requests under way."""

    def __init__(self) -> None:
        self._flying: set[Flight] = set()

    def open(self, *, names: frozenset[str], seconds: float) -> Flight:
        flight = Flight(names=names, seconds=seconds)
        self._flying.add(flight)
        return flight

    def close(self, flight: Flight) -> None:
        flight.land()
        self._flying.discard(flight)

    def abort(self, rid: str | None) -> list[Flight]:
        """Those of which `rid` ends something, all if None: none is tried again. The engines end them."""
        found = [
            flight
            for flight in self._flying
            if rid is None or any(is_covered(name, by=rid) for name in flight.names)
        ]
        for flight in found:
            flight.aborted = True
        return found

    def end_all(self, ending: Ending) -> None:
        for flight in self._flying:
            flight.end(ending)
