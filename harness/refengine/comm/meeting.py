"""Where threads that are ranks meet, and how each hears that a meeting can never take place.

A board knows what every rank does: it runs, waits in a named call, or is done. A meeting is complete when all
ranks of its group have come; whoever comes last opens its gate. The world ends, and every waiting rank is told
why, when a rank fails, when no rank runs any more while some wait (found at the event that brings it about,
without a timer), or when a rank that does run stays away longer than `MEETING_TIMEOUT_S`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from harness.refengine.comm.base import CommError

T = TypeVar("T")

# Only a rank that waits for something outside of its world, or never ends, makes others wait this long: a bug of
# the test. Far longer than any step of a test model takes on a loaded machine.
MEETING_TIMEOUT_S = 120.0

_RUNS = "runs"
_RETURNED = "has returned"


class WorldEndedError(CommError):
    """A collective can never complete; the message says why. Of several ranks' errors never the cause."""


class _Gate:
    """One round of a meeting: what each rank brought, by rank of the group, and whether all have come."""

    def __init__(self) -> None:
        self.brought: dict[int, Any] = {}
        self.complete = False
        self.opened = threading.Event()


class Board:
    """What every rank of one world does; one lock for all of it, held for a few dictionary steps at a time."""

    def __init__(self, ranks: Iterable[int]) -> None:
        self._lock = threading.Lock()
        self._doing = dict.fromkeys(ranks, _RUNS)
        self._meetings: list[Meeting] = []
        self._end: str | None = None

    def add(self, meeting: Meeting) -> None:
        self._meetings.append(meeting)

    def meet(self, meeting: Meeting, *, rank: int, call: str, bring: Any) -> list[Any]:
        """Wait for all ranks of the meeting; what each brought, in order. Raises WorldEndedError."""
        with self._lock:
            gate = meeting.gate
            gate.brought[rank] = bring
            if len(gate.brought) == len(meeting.ranks):
                self._complete(meeting)
            else:
                self._doing[meeting.ranks[rank]] = f"waits in {call}"
                self._end_if_stuck()
        if not gate.opened.wait(MEETING_TIMEOUT_S):
            self.end(f"not all ranks came within {MEETING_TIMEOUT_S:g} s: {self._summary()}")
        if not gate.complete:
            raise WorldEndedError(f"{call} cannot complete: {self._end}")
        return [gate.brought[i] for i in range(len(meeting.ranks))]

    def finish(self, rank: int) -> None:
        """The rank's function has returned."""
        with self._lock:
            self._doing[rank] = _RETURNED
            self._end_if_stuck()

    def fail(self, rank: int, error: BaseException) -> None:
        """The rank's function has raised: nobody needs to wait for it."""
        with self._lock:
            self._doing[rank] = f"raised {type(error).__name__}"
            self._end_with(f"rank {rank} raised {type(error).__name__}: {error}")

    def end(self, reason: str) -> None:
        """Free all who wait, now and later; the first reason stays."""
        with self._lock:
            self._end_with(reason)

    def _complete(self, meeting: Meeting) -> None:
        gate, meeting.gate = meeting.gate, _Gate()
        for rank in meeting.ranks:
            self._doing[rank] = _RUNS
        gate.complete = self._end is None
        gate.opened.set()

    def _end_if_stuck(self) -> None:
        if self._end is not None:
            self._end_with(self._end)  # who came after the end is freed as well
        elif _RUNS not in self._doing.values() and set(self._doing.values()) != {_RETURNED}:
            self._end_with(f"no rank can go on: {self._summary()}")

    def _end_with(self, reason: str) -> None:
        self._end = self._end or reason
        for meeting in self._meetings:
            meeting.gate.opened.set()

    def _summary(self) -> str:
        """`rank 0 waits in tp barrier; ranks 1, 2 have returned`."""
        by_doing: dict[str, list[int]] = {}
        for rank, doing in sorted(self._doing.items()):
            by_doing.setdefault(doing, []).append(rank)
        return "; ".join(_sentence(ranks, doing) for doing, ranks in by_doing.items())


def _sentence(ranks: list[int], doing: str) -> str:
    numbers = ", ".join(map(str, ranks))
    return f"rank {numbers} {doing}" if len(ranks) == 1 else f"ranks {numbers}: each {doing}"


class Meeting:
    """One group's meetings, one after the other; `ranks` are the world's names of its members."""

    def __init__(self, board: Board, ranks: list[int]) -> None:
        self.ranks = ranks
        self.gate = _Gate()
        self._board = board
        board.add(self)

    def exchange(self, rank: int, call: str, mine: Any, read: Callable[[list[Any]], T]) -> T:
        """Put `mine` down, let `read` look at what all put down, and leave together, so that nobody changes what
        another still reads. Where `read` raises it does so on every rank, and nobody waits for the leaving."""
        result = read(self._board.meet(self, rank=rank, call=call, bring=mine))
        self._board.meet(self, rank=rank, call=call, bring=None)
        return result
