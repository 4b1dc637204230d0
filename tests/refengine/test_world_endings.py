"""Worlds in which something goes wrong: every rank is told why, at once, and none waits for ever."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.refengine.comm import CommError, WorldEndedError, WorldMaker, WorldRank, meeting

make = WorldMaker(None)


def said(call: Callable[[], object]) -> str:
    """What a collective that cannot be says to its rank."""
    with pytest.raises(CommError) as caught:
        call()
    return str(caught.value)


def test_an_error_is_raised_with_its_rank_and_frees_the_others() -> None:
    told: dict[int, str] = {}

    def fail_on_two(rank: WorldRank) -> None:
        if rank.rank == 2:
            raise LookupError("no such head")
        told[rank.rank] = said(rank.comm.tp.barrier)
        raise WorldEndedError("seen")

    with pytest.raises(LookupError) as caught:
        make(tp=4, dcp=2).run(fail_on_two)
    assert caught.value.args == ("no such head",)
    assert caught.value.__notes__ == ["raised on rank 2 of 4"]
    why = "tp barrier cannot complete: rank 2 raised LookupError: no such head"
    assert told == {0: why, 1: why, 3: why}


def test_the_lowest_of_several_errors_is_raised_and_the_others_are_named() -> None:
    def fail(rank: WorldRank) -> None:
        rank.comm.tp.barrier()
        if rank.rank:
            raise ValueError(f"rank {rank.rank}")

    with pytest.raises(ValueError) as caught:
        make(tp=4).run(fail)
    assert caught.value.args == ("rank 1",)
    assert caught.value.__notes__ == ["raised on rank 1 of 4", "ranks that raised too: 2, 3"]


def test_a_failing_assertion_is_an_error_as_any_other() -> None:
    def check(rank: WorldRank) -> None:
        assert rank.comm.dcp.all_reduce(torch.ones(1)).item() == 3

    with pytest.raises(AssertionError) as caught:
        make(tp=2, dcp=2).run(check)
    assert caught.value.__notes__[0] == "raised on rank 0 of 2"


def test_a_collective_that_one_rank_never_enters_names_who_waits_where() -> None:
    def forget(rank: WorldRank) -> None:
        if rank.rank != 3:
            rank.comm.tp.all_reduce(torch.ones(2))

    with pytest.raises(CommError) as caught:
        make(tp=4, dcp=2).run(forget)
    assert str(caught.value) == (
        "tp all_reduce of [2] torch.float32 cannot complete: no rank can go on: ranks 0, 1, 2: each waits in"
        " tp all_reduce of [2] torch.float32; rank 3 has returned"
    )
    assert caught.value.__notes__ == ["raised on rank 0 of 4", "ranks that raised too: 1, 2"]


def test_groups_entered_in_another_order_are_told_apart_at_once() -> None:
    """Nobody has returned and nobody failed: only together do they show that none can go on."""

    def cross(rank: WorldRank) -> None:
        first, second = (
            (rank.comm.tp, rank.comm.dcp) if rank.rank in (0, 3) else (rank.comm.dcp, rank.comm.tp)
        )
        first.barrier()
        second.barrier()

    with pytest.raises(CommError) as caught:
        make(tp=4, dcp=2).run(cross)
    assert str(caught.value) == (
        "tp barrier cannot complete: no rank can go on: ranks 0, 3: each waits in tp barrier;"
        " ranks 1, 2: each waits in dcp barrier"
    )


def test_a_group_that_can_go_on_is_not_disturbed_by_one_that_waits() -> None:
    """Ranks 2 and 3 meet fifty times while 0 waits for 1, which comes last."""
    last = threading.Event()

    def work(rank: WorldRank) -> float:
        if rank.rank == 1:
            assert last.wait(60)
        for _ in range(50):
            total = rank.comm.dcp.all_reduce(torch.tensor(float(rank.rank))).item()
        if rank.rank == 3:
            last.set()
        return total

    assert make(tp=4, dcp=2).run(work) == [1.0, 1.0, 5.0, 5.0]


def test_a_rank_that_stays_away_is_named_when_the_deadline_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "MEETING_TIMEOUT_S", 0.01)
    ended = threading.Event()

    def stay_away(rank: WorldRank) -> None:
        if rank.rank == 1:
            assert ended.wait(60)
            return
        try:
            rank.comm.tp.barrier()
        finally:
            ended.set()

    with pytest.raises(CommError) as caught:
        make(tp=2).run(stay_away)
    assert str(caught.value) == (
        "tp barrier cannot complete: not all ranks came within 0.01 s: rank 0 waits in tp barrier; rank 1 runs"
    )


def test_the_deadline_is_generous() -> None:
    assert meeting.MEETING_TIMEOUT_S == 120.0


def test_an_interrupt_frees_ranks_that_wait() -> None:
    freed: list[str] = []
    over = threading.Event()

    def work(rank: WorldRank) -> None:
        if rank.rank == 1:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # as Ctrl-C does
            assert over.wait(60)
            return
        try:
            freed.append(said(rank.comm.tp.barrier))
        finally:
            over.set()

    with pytest.raises(KeyboardInterrupt):
        make(tp=2).run(work)
    assert freed == ["tp barrier cannot complete: the run was interrupted"]


def disagree(verb: str, first: str, second: str) -> str:
    return f"ranks of dcp disagree: rank 0 in {verb} of {first}, rank 1 in {verb} of {second}"


F32 = "torch.float32"


UNEVEN: dict[str, tuple[Callable[[Any, int], Any], str]] = {
    "all_gather": (
        lambda comm, rank: comm.all_gather(torch.ones(2 + rank)),
        disagree("all_gather", f"[2] {F32}", f"[3] {F32}"),
    ),
    "all_gather of an empty one": (
        lambda comm, rank: comm.all_gather(torch.ones(rank)),
        disagree("all_gather", f"[0] {F32}", f"[1] {F32}"),
    ),
    "all_gather of other dims": (
        lambda comm, rank: comm.all_gather(torch.ones(2, 3) if rank else torch.ones(3, 2), dim=-1),
        disagree("all_gather", f"[3, 2] {F32}", f"[2, 3] {F32}"),
    ),
    "reduce_scatter": (
        lambda comm, rank: comm.reduce_scatter(torch.ones(1, 1, 4 + 2 * rank), dim=2),
        disagree("reduce_scatter", f"[2, 1, 1, 2] {F32}", f"[2, 1, 1, 3] {F32}"),
    ),
    "all_to_all": (
        lambda comm, rank: comm.all_to_all(torch.ones(2, 1 + rank)),
        disagree("all_to_all", f"[2, 1] {F32}", f"[2, 2] {F32}"),
    ),
    "all_reduce": (
        lambda comm, rank: comm.all_reduce(torch.ones(3 - rank)),
        disagree("all_reduce", f"[3] {F32}", f"[2] {F32}"),
    ),
    "broadcast": (
        lambda comm, rank: comm.broadcast(torch.ones(1 + rank), src=1),
        disagree("broadcast", f"[1] {F32}", f"[2] {F32}"),
    ),
    "dtypes": (
        lambda comm, rank: comm.all_reduce(torch.ones(1, dtype=torch.int64 if rank else torch.bfloat16)),
        disagree("all_reduce", "[1] torch.bfloat16", "[1] torch.int64"),
    ),
    "a length that no one can split": (
        lambda comm, rank: comm.reduce_scatter(torch.ones(2, 2, 5), dim=-1),
        "reduce_scatter over dcp cannot split dim 2 of length 5 into 2 equal parts",
    ),
}


@pytest.mark.parametrize("case", UNEVEN)
def test_uneven_shapes_are_refused_on_every_rank_and_the_world_goes_on(case: str) -> None:
    call, message = UNEVEN[case]

    def work(rank: WorldRank) -> tuple[str, float]:
        refused = said(lambda: call(rank.comm.dcp, rank.comm.dcp.rank))
        return refused, rank.comm.tp.all_reduce(torch.ones(1)).item()

    assert make(tp=4, dcp=2).run(work) == [(message, 4.0)] * 4


def test_a_length_that_one_rank_cannot_split_reaches_the_others_as_its_error() -> None:
    told: list[str] = []

    def work(rank: WorldRank) -> None:
        length = 5 if rank.rank == 1 else 4
        try:
            rank.comm.dcp.reduce_scatter(torch.ones(length))
        except CommError as error:
            told.append(str(error))
            raise

    refused = "reduce_scatter over dcp cannot split dim 0 of length 5 into 2 equal parts"
    with pytest.raises(CommError) as caught:
        make(tp=2, dcp=2).run(work)
    assert str(caught.value) == refused
    assert sorted(told) == [
        "dcp reduce_scatter of [2, 2] torch.float32 cannot complete: rank 1 raised CommError: " + refused,
        refused,
    ]


def test_a_rank_that_swallows_its_refusal_lets_nobody_hang() -> None:
    def work(rank: WorldRank) -> str:
        return said(lambda: rank.comm.dcp.reduce_scatter(torch.ones(5 if rank.rank == 1 else 4)))

    where = "dcp reduce_scatter of [2, 2] torch.float32"
    assert make(tp=2, dcp=2).run(work) == [
        f"{where} cannot complete: no rank can go on: rank 0 waits in {where}; rank 1 has returned",
        "reduce_scatter over dcp cannot split dim 0 of length 5 into 2 equal parts",
    ]


def test_after_the_end_no_collective_completes() -> None:
    def work(rank: WorldRank) -> list[str]:
        if rank.rank == 0:
            raise LookupError("gone")
        found = [said(rank.comm.tp.barrier), said(rank.comm.dcp.barrier)]
        # their DCP group is whole, and ends all the same
        assert found[1] == "dcp barrier cannot complete: rank 0 raised LookupError: gone"
        return found

    with pytest.raises(LookupError) as caught:
        make(tp=4, dcp=2).run(work)
    assert caught.value.__notes__ == ["raised on rank 0 of 4"]


@given(
    topology=st.sampled_from([(2, 2), (4, 2), (4, 4), (8, 4)]),
    plan=st.lists(st.tuples(st.sampled_from(["tp", "dcp"]), st.integers(0, 7), st.booleans()), max_size=8),
)
@settings(max_examples=200, deadline=None)
def test_any_plan_of_meetings_ends_and_is_judged_right(
    topology: tuple[int, int], plan: list[tuple[str, int, bool]]
) -> None:
    """Each step is a barrier of one group that at most one rank leaves out; a run of the plan by hand is the oracle:
    a rank may go on while all of its group stand at the same step."""
    tp, dcp = topology

    def steps_of(rank: int) -> list[tuple[int, str]]:
        return [
            (index, group)
            for index, (group, absent, skips) in enumerate(plan)
            if not (skips and absent % tp == rank)
        ]

    def group_of(rank: int, group: str) -> list[int]:
        size = tp if group == "tp" else dcp
        return list(range(rank // size * size, rank // size * size + size))

    left = {rank: [group for _, group in steps_of(rank)] for rank in range(tp)}
    moved = True
    while moved:
        moved = False
        for rank in range(tp):
            if left[rank]:
                group = left[rank][0]
                together = group_of(rank, group)
                if all(left[other] and left[other][0] == group for other in together):
                    for other in together:
                        left[other].pop(0)
                    moved = True
    stuck = {rank for rank in range(tp) if left[rank]}

    def play(rank: WorldRank) -> bool:
        for _, group in steps_of(rank.rank):
            try:
                getattr(rank.comm, group).barrier()
            except WorldEndedError:
                return False
        return True

    assert make(tp=tp, dcp=dcp).run(play) == [rank not in stuck for rank in range(tp)]
