"""The in-process backend: every rank is a thread of this process, for tests of code written for one rank.

Phases: `ThreadWorld(config)` makes one meeting point for each group; `run(fn)` starts a thread per rank, each
under `harness.topology.inject()` so that `get_parallel()` answers for it; a collective puts its tensor down,
waits for all, reads, and waits again before anyone may change what it put down.
Failure rule: the first rank that raises breaks every meeting point, so that no other waits for ever, and
`run` raises that error with the rank as a note.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from torch import Tensor

from harness.errors import HarnessError
from harness.refengine.comm.base import CommError, Comms, Communicator, Verb
from harness.refengine.comm.connect import make_communicators
from harness.refengine.config import EngineConfig
from harness.topology import dcp_groups, inject

R = TypeVar("R")
T = TypeVar("T")

# Only a rank that returned without calling what its peers call makes them wait: a bug of the test. Far longer
# than any step of a test model takes on a loaded machine.
MEETING_TIMEOUT_S = 120.0


class _Broken(HarnessError):
    """A meeting point was broken because another rank failed; never the error that `run` reports."""


class _MeetingPoint:
    """One group's barrier and the places where its ranks put things down."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = threading.Barrier(size, timeout=MEETING_TIMEOUT_S)
        self.places: list[Any] = [None] * size

    def exchange(self, rank: int, mine: Any, read: Callable[[list[Any]], T]) -> T:
        """Put `mine` down, let `read` look at what all put down, and leave together."""
        try:
            self.places[rank] = mine
            self.barrier.wait()
            result = read(self.places)
            self.barrier.wait()
        except threading.BrokenBarrierError:
            raise _Broken(f"another rank failed, or did not come within {MEETING_TIMEOUT_S:g} s") from None
        return result


class ThreadCommunicator(Communicator):
    """A rank's end of a group of threads."""

    def __init__(self, meeting: _MeetingPoint, *, name: str, rank: int) -> None:
        super().__init__(name=name, rank=rank, size=meeting.size)
        self._meeting = meeting

    def _gather(self, verb: Verb, x: Tensor) -> Tensor:
        return self._exchange(_describe(verb, x), x, torch.stack)

    def _transpose(self, verb: Verb, x: Tensor) -> Tensor:
        return self._exchange(_describe(verb, x), x, lambda all_x: torch.stack([y[self.rank] for y in all_x]))

    def _broadcast(self, x: Tensor, *, src: int) -> Tensor:
        return self._exchange(_describe(Verb.BROADCAST, x), x, lambda all_x: all_x[src].clone())

    def _broadcast_bytes(self, data: bytes | None, *, src: int) -> bytes:
        return self._exchange("broadcast_bytes", data, lambda all_data: bytes(all_data[src]))

    def _barrier(self) -> None:
        self._exchange(Verb.BARRIER, None, len)

    def _exchange(self, call: str, mine: Any, read: Callable[[list[Any]], T]) -> T:
        """`read` gets what each rank put down, once all say they are in the same `call`."""

        def compare_then_read(places: list[tuple[str, Any]]) -> T:
            if any(said != call for said, _ in places):
                calls = ", ".join(f"rank {rank} in {said}" for rank, (said, _) in enumerate(places))
                raise CommError(f"ranks of {self.name} disagree: {calls}")
            return read([put for _, put in places])

        return self._meeting.exchange(self.rank, (call, mine), compare_then_read)


def _describe(verb: Verb, x: Tensor) -> str:
    return f"{verb} of {list(x.shape)} {x.dtype}"


class ThreadWorld:
    """All ranks of a topology as threads. Reusable: each `run` starts from fresh meeting points."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self._groups = dcp_groups(config.parallel())
        self._make_meeting_points()

    def _make_meeting_points(self) -> None:
        self._tp = _MeetingPoint(self.config.tp)
        self._dcp = [_MeetingPoint(len(group)) for group in self._groups]

    def connect(self, rank: int) -> Comms:
        """Both communicators of TP rank `rank`."""
        index = next(i for i, group in enumerate(self._groups) if rank in group)
        dcp_rank = self._groups[index].index(rank)
        return Comms(
            tp=ThreadCommunicator(self._tp, name="tp", rank=rank),
            dcp=ThreadCommunicator(self._dcp[index], name="dcp", rank=dcp_rank),
        )

    def run(self, fn: Callable[[int, Comms], R]) -> list[R]:
        """Call `fn(rank, comms)` once for each rank, all at the same time; results in rank order.

        Raises what the first failing rank raised, with a note that names the rank.
        """
        self._make_meeting_points()

        def work(rank: int) -> R:
            with inject(self.config.parallel(), rank=rank):
                return fn(rank, make_communicators(self.config, rank=rank, plumbing=self))

        with ThreadPoolExecutor(self.config.tp, thread_name_prefix="rank") as pool:
            ranks = [pool.submit(work, rank) for rank in range(self.config.tp)]
            for future in ranks:
                future.add_done_callback(self._break_if_failed)
        self._raise_first([future.exception() for future in ranks])
        return [future.result() for future in ranks]

    def _break_if_failed(self, future: Future[R]) -> None:
        if future.exception() is not None:
            for meeting in (self._tp, *self._dcp):
                meeting.barrier.abort()

    def _raise_first(self, errors: list[BaseException | None]) -> None:
        """Raise the error of the lowest rank, but one that only saw another fail never hides the cause."""
        failed = [(rank, error) for rank, error in enumerate(errors) if error is not None]
        causes = [(rank, error) for rank, error in failed if not isinstance(error, _Broken)]
        for rank, error in causes or failed:
            error.add_note(f"raised on rank {rank} of {self.config.tp}")
            raise error
