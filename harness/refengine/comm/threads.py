"""The in-process backend: every rank is a thread of this process, for tests of code written for one rank.

Phases: `RankThreads(config)` makes one meeting point for each group; `run(fn)` starts a thread per rank, each
under `harness.topology.inject()` so that `get_parallel()` answers for it; a collective puts its tensor down,
waits for all, reads, and waits again before anyone may change what it put down.
Failure rule: a rank that raises ends the world, so that no other waits for ever, and `run` raises that error with
the rank as a note; so does a collective that not all ranks enter (`meeting.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

import torch
from torch import Tensor

from harness.refengine.comm.base import Call, CommError, Comms, Communicator, Verb
from harness.refengine.comm.connect import make_communicators
from harness.refengine.comm.meeting import Board, Meeting, WorldEndedError
from harness.refengine.config import EngineConfig
from harness.topology import InjectedWorker, ParallelConfig, dcp_groups, inject, tp_groups

R = TypeVar("R")
T = TypeVar("T")


class ThreadCommunicator(Communicator):
    """A rank's end of a group of threads."""

    def __init__(self, meeting: Meeting, *, name: str, rank: int) -> None:
        super().__init__(name=name, rank=rank, size=len(meeting.ranks))
        self._meeting = meeting

    def _is_local(self, x: Tensor) -> bool:
        """Empty tensors meet too: only so does a rank that has one hear that others have not."""
        return self.size == 1

    def _gather(self, call: Call, x: Tensor) -> Tensor:
        return self._exchange(call, _describe(call, x), x, torch.stack)

    def _transpose(self, call: Call, x: Tensor) -> Tensor:
        return self._exchange(
            call, _describe(call, x), x, lambda all_x: torch.stack([y[self.rank] for y in all_x])
        )

    def _broadcast(self, x: Tensor, *, src: int) -> Tensor:
        call = Call(Verb.BROADCAST, src)
        return self._exchange(call, _describe(call, x), x, lambda all_x: all_x[src].clone())

    def _broadcast_bytes(self, data: bytes | None, *, src: int) -> bytes:
        call = Call(Verb.BROADCAST, src)
        return self._exchange(call, "broadcast_bytes", data, lambda all_data: bytes(all_data[src]))

    def _barrier(self) -> None:
        self._exchange(Call(Verb.BARRIER), Verb.BARRIER, None, len)

    def _exchange(self, call: Call, words: str, mine: Any, read: Callable[[list[Any]], T]) -> T:
        """`read` gets what each rank put down, once all say they are in the same `call`, in the same `words`."""

        def compare_then_read(places: list[tuple[tuple[Call, str], Any]]) -> T:
            said = [told for told, _ in places]
            if any(told != (call, words) for told in said):
                raise CommError(f"ranks of {self.name} disagree: {_who_said_what(said)}")
            return read([put for _, put in places])

        return self._meeting.exchange(
            self.rank, f"{self.name} {words}", ((call, words), mine), compare_then_read
        )


def _describe(call: Call, x: Tensor) -> str:
    return f"{call.verb} of {list(x.shape)} {x.dtype}"


def _who_said_what(said: list[tuple[Call, str]]) -> str:
    """`rank 0 in all_reduce of [2] torch.float32, ...`; dims and sources are named where they differ."""
    differ = len({call.along for call, _ in said}) > 1
    return ", ".join(
        f"rank {rank} in {words}{call.detail() if differ else ''}" for rank, (call, words) in enumerate(said)
    )


class RankThreads:
    """All ranks of one topology for one run."""

    def __init__(self, config: ParallelConfig) -> None:
        self._config = config
        self._board = Board(range(config.world_size))
        self._tp = [Meeting(self._board, ranks) for ranks in tp_groups(config)]
        self._dcp = [Meeting(self._board, ranks) for ranks in dcp_groups(config)]

    def connect(self, rank: int) -> Comms:
        """Both communicators of `rank`."""
        tp, dcp = _of(self._tp, rank), _of(self._dcp, rank)
        return Comms(
            tp=ThreadCommunicator(tp, name="tp", rank=tp.ranks.index(rank)),
            dcp=ThreadCommunicator(dcp, name="dcp", rank=dcp.ranks.index(rank)),
        )

    def run(self, fn: Callable[[InjectedWorker], R]) -> list[R]:
        """Call `fn` once as each rank, all at the same time; results in rank order.

        Raises what a rank raised, the lowest where several did, with a note that names it.
        """

        def work(rank: int) -> R:
            try:
                with inject(self._config, rank=rank) as worker:
                    result = fn(worker)
            except BaseException as error:
                self._board.fail(rank, error)
                raise
            self._board.finish(rank)
            return result

        size = self._config.world_size
        with ThreadPoolExecutor(size, thread_name_prefix="rank") as pool:
            try:
                ranks = [pool.submit(work, rank) for rank in range(size)]
                wait(ranks)
            except BaseException:  # an interrupt: ranks that wait for each other would keep it waiting
                self._board.end("the run was interrupted")
                raise
        _raise_first(ranks)
        return [future.result() for future in ranks]


def _of(meetings: list[Meeting], rank: int) -> Meeting:
    return next(meeting for meeting in meetings if rank in meeting.ranks)


def _raise_first(ranks: list[Future[Any]]) -> None:
    """Raise the error of the lowest rank, but one that only saw another fail never hides the cause."""
    failed = [(rank, error) for rank, future in enumerate(ranks) if (error := future.exception()) is not None]
    causes = [(rank, error) for rank, error in failed if not isinstance(error, WorldEndedError)]
    if not failed:
        return
    (rank, error), *others = causes or failed
    error.add_note(f"raised on rank {rank} of {len(ranks)}")
    if others:
        error.add_note(f"ranks that raised too: {', '.join(str(other) for other, _ in others)}")
    raise error


class ThreadWorld:
    """An engine's ranks as threads. Reusable: each `run` starts from fresh meeting points."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self._threads = RankThreads(config.parallel())

    def connect(self, rank: int) -> Comms:
        """Both communicators of TP rank `rank`."""
        return self._threads.connect(rank)

    def run(self, fn: Callable[[int, Comms], R]) -> list[R]:
        """Call `fn(rank, comms)` once for each rank, as `RankThreads.run` does."""
        self._threads = RankThreads(self.config.parallel())

        def work(worker: InjectedWorker) -> R:
            return fn(worker.rank, make_communicators(self.config, rank=worker.rank, plumbing=self))

        return self._threads.run(work)
