"""Communicators between threads, and what all backends share: counts, refusals, groups of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from comm_programs import Scenario, calls_by_kind, draw_steps, expected, run_program, same
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.refengine.comm import CommError, Comms, ThreadWorld
from harness.refengine.comm.base import sum_in_rank_order
from harness.refengine.config import EngineConfig
from harness.topology import get_parallel


def world(tp: int, dcp: int = 1) -> ThreadWorld:
    return ThreadWorld(EngineConfig(tp=tp, dcp=dcp))


@given(
    topology=st.sampled_from([(1, 1), (2, 1), (2, 2), (4, 2), (8, 4)]),
    seed=st.integers(0, 2**16),
    steps=st.integers(1, 20),
)
@settings(max_examples=40, deadline=None)
def test_any_sequence_of_verbs_equals_the_oracle(topology: tuple[int, int], seed: int, steps: int) -> None:
    tp, dcp = topology
    scenario = Scenario(tp=tp, dcp=dcp, seed=seed, steps=steps)

    def play(rank: int, comms: Comms) -> tuple[list[Any], dict[str, dict[str, int]]]:
        return run_program(comms, rank, scenario), {"tp": comms.tp.counts, "dcp": comms.dcp.counts}

    for rank, (results, counts) in enumerate(world(tp, dcp).run(play)):
        for step, got, right in zip(draw_steps(scenario), results, expected(scenario, rank), strict=True):
            assert same(got, right), f"rank {rank}, {step}"
        for group in ("tp", "dcp"):
            called = {kind: n for kind, n in counts[group].items() if n}
            assert called == calls_by_kind(scenario, group)


def test_each_thread_is_a_rank_of_the_topology() -> None:
    def look(rank: int, comms: Comms) -> tuple[int, ...]:
        live = get_parallel()
        return live.tp_rank, live.attn_dcp_rank, comms.tp.rank, comms.dcp.rank, comms.tp.size, comms.dcp.size

    assert world(4, 2).run(look) == [(rank, rank % 2, rank, rank % 2, 4, 2) for rank in range(4)]


def test_groups_of_one_count_too() -> None:
    def call_all(rank: int, comms: Comms) -> dict[str, int]:
        x = torch.ones(1)
        comms.dcp.all_gather(x)
        comms.dcp.reduce_scatter(x)
        comms.dcp.all_to_all(x)
        comms.dcp.all_reduce(x)
        comms.dcp.broadcast(x)
        comms.dcp.broadcast_bytes(b"")
        comms.dcp.barrier()
        return comms.dcp.counts

    once = {"all_gather": 1, "reduce_scatter": 1, "all_to_all": 1, "all_reduce": 1, "barrier": 1}
    assert world(1).run(call_all) == [{**once, "broadcast": 2}]


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("verb", ["all_gather", "reduce_scatter", "all_to_all", "all_reduce", "broadcast"])
def test_results_share_no_memory_with_the_argument(size: int, verb: str) -> None:
    def overwrite(rank: int, comms: Comms) -> bool:
        x = torch.ones(size, 3)
        result = getattr(comms.tp, verb)(x)
        before = result.clone()
        x.fill_(7)
        return torch.equal(result, before)

    assert all(world(size).run(overwrite))


BAD_CALLS: list[tuple[Callable[[Comms], Any], str]] = [
    (lambda c: c.tp.all_gather(torch.ones(2, 2), dim=2), "a tensor of 2 dims has no dim 2"),
    (lambda c: c.tp.all_gather(torch.tensor(1.0)), "a tensor of 0 dims has no dim 0"),
    (lambda c: c.tp.reduce_scatter(torch.ones(2, 3), dim=-1), "dim 1 of length 3 into 2 equal parts"),
    (lambda c: c.tp.all_to_all(torch.ones(3, 2)), "one row for each of 2 ranks, found 3"),
    (lambda c: c.tp.broadcast(torch.ones(1), src=2), "src is 2, ranks are 0 to 1"),
    (lambda c: c.tp.broadcast_bytes(None, src=c.tp.rank), "must pass its bytes"),
    (lambda c: c.tp.broadcast_bytes(b"x", src=1 - c.tp.rank), "must pass None"),
]


@pytest.mark.parametrize(("call", "message"), BAD_CALLS, ids=[message for _, message in BAD_CALLS])
def test_what_cannot_be_is_refused_with_the_numbers(call: Callable[[Comms], Any], message: str) -> None:
    with pytest.raises(CommError, match=message):
        world(2).run(lambda rank, comms: call(comms))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda tp: tp.all_reduce(torch.ones(3)), r"all_reduce of \[3\] torch.float32"),
        (lambda tp: tp.all_reduce(torch.ones(2).long()), r"all_reduce of \[2\] torch.int64"),
        (lambda tp: tp.broadcast(torch.ones(2)), r"broadcast of \[2\] torch.float32"),
        (lambda tp: tp.barrier(), "barrier"),
    ],
)
def test_ranks_that_disagree_are_told_what_each_does(other: Callable[[Any], Any], message: str) -> None:
    def disagree(rank: int, comms: Comms) -> None:
        if rank:
            other(comms.tp)
        else:
            comms.tp.all_reduce(torch.ones(2))

    with pytest.raises(CommError, match=rf"rank 0 in all_reduce of \[2\] torch.float32, rank 1 in {message}"):
        world(2).run(disagree)


def test_one_failing_rank_frees_the_others_and_is_named() -> None:
    def fail_on_two(rank: int, comms: Comms) -> None:
        if rank == 2:
            raise ValueError("no such head")
        comms.dcp.barrier()
        comms.tp.barrier()

    with pytest.raises(ValueError, match="no such head") as caught:
        world(4, 2).run(fail_on_two)
    assert caught.value.__notes__ == ["raised on rank 2 of 4"]


def test_a_world_works_again_after_a_failure() -> None:
    again = world(2)
    with pytest.raises(ZeroDivisionError):
        again.run(lambda rank, comms: 1 // rank)
    assert (
        again.run(lambda rank, comms: comms.tp.broadcast_bytes(b"up" if rank == 0 else None)) == [b"up"] * 2
    )


def test_sums_are_taken_in_rank_order() -> None:
    """1e8 + 1 is 1e8 in fp32, so only one order gives this; in bf16 a stepwise sum would stay at 256."""
    column = torch.tensor([[1e8], [1.0], [-1e8], [1.0]])
    assert sum_in_rank_order(column).item() == 1.0
    halves = torch.tensor([[256.0]] + [[1.0]] * 7).bfloat16()
    assert sum_in_rank_order(halves).item() == 264.0
