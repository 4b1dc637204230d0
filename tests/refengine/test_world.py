"""A whole world of threads: each rank knows itself, and talks to its groups."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from harness.errors import HarnessError, NoGroupError, TopologyError, UsageError
from harness.refengine.comm import World, WorldEndedError, WorldMaker, WorldRank, meeting
from harness.topology import (
    InjectedGroup,
    ParallelConfig,
    ParallelState,
    dcp_groups,
    get_parallel,
    inject,
    tp_groups,
)

make = WorldMaker(None)


def test_each_rank_is_given_itself() -> None:
    def look(rank: WorldRank) -> tuple[Any, ...]:
        live = get_parallel()
        assert rank.parallel.state == live.state == rank.parallel.ps
        return (
            rank.rank,
            live.tp_rank,
            live.dcp_rank,
            rank.comm.tp.rank,
            rank.comm.dcp.rank,
            rank.comm.dcp.size,
        )

    assert make(tp=4, dcp=2).run(look) == [(rank, rank, rank % 2, rank, rank % 2, 2) for rank in range(4)]


@pytest.mark.parametrize("sizes", [{"tp": 8, "dcp": 4}, {"tp": 2, "pp": 2, "dcp": 2}, {"tp": 4}, {"tp": 1}])
def test_groups_are_those_of_the_topology(sizes: dict[str, int]) -> None:
    world = make(**sizes)

    def gather(rank: WorldRank) -> tuple[list[int], list[int]]:
        own = torch.tensor([rank.rank])
        return rank.comm.tp.all_gather(own).tolist(), rank.comm.dcp.all_gather(own).tolist()

    for rank, (tp, dcp) in enumerate(world.run(gather)):
        assert tp == next(group for group in tp_groups(world.config) if rank in group)
        assert dcp == next(group for group in dcp_groups(world.config) if rank in group)


def test_the_live_group_communicates() -> None:
    def gather(rank: WorldRank) -> tuple[list[int], tuple[int, ...], int]:
        group: Any = get_parallel().dcp_group
        assert isinstance(group, InjectedGroup)
        assert (group.rank, group.size, len(group), list(group)) == (rank.rank % 2, 2, 2, list(group.ranks))
        return (
            group.all_gather(torch.tensor([rank.rank])).tolist(),
            group.ranks,
            rank.comm.dcp.counts["all_gather"],
        )

    assert make(tp=4, dcp=2).run(gather) == [
        ([0, 1], (0, 1), 1),
        ([0, 1], (0, 1), 1),
        ([2, 3], (2, 3), 1),
        ([2, 3], (2, 3), 1),
    ]


def test_where_dcp_is_off_there_is_no_live_group() -> None:
    def look(rank: WorldRank) -> bool:
        with pytest.raises(NoGroupError):
            _ = get_parallel().dcp_group
        return get_parallel().dcp_enabled

    assert make(tp=2).run(look) == [False, False]


def test_nobody_leaves_while_another_still_reads() -> None:
    """What a rank passed is its own again afterwards, so it must not come back while a peer looks at it."""
    board = meeting.Board(range(2))
    point = meeting.Meeting(board, [0, 1])
    left = threading.Event()
    order: list[str] = []

    def slow(brought: list[str]) -> list[str]:
        left.wait(0.2)  # time enough for the other to leave, were it let go
        order.append("read")
        return list(brought)

    def be_one() -> None:
        assert point.exchange(1, "call", "b", slow) == ["a", "b"]

    peer = threading.Thread(target=be_one)
    peer.start()
    assert point.exchange(0, "call", "a", list) == ["a", "b"]
    order.append("left")
    left.set()
    peer.join()
    assert order == ["read", "left"]


def test_worlds_follow_and_nest_in_each_other() -> None:
    def inner(rank: WorldRank) -> int:
        return get_parallel().dcp_size

    def outer(rank: WorldRank) -> list[int]:
        found = make(tp=2, dcp=2).run(inner)
        rank.comm.tp.barrier()
        assert get_parallel().dcp_size == 4
        return found

    assert make(tp=4, dcp=4).run(outer) == [[2, 2]] * 4
    world = make(tp=4, dcp=2)
    with pytest.raises(ZeroDivisionError):
        world.run(lambda rank: 1 // rank.rank)
    for _ in range(3):
        assert world.run(inner) == [2] * 4


def test_a_world_inside_a_block_leaves_it_as_it_was() -> None:
    with inject(ParallelConfig(tp_size=8, dcp_size=8), rank=7):
        assert make(tp=2, dcp=2).run(lambda rank: get_parallel().dcp_rank) == [0, 1]
        assert get_parallel().dcp_rank == 7


def test_sizes_are_the_marks_keys() -> None:
    assert make(tp=8, dp=2, attn_cp=2, enable_dp_attention=True).config == ParallelConfig(
        tp_size=8, dp_size=2, attn_cp_size=2, enable_dp_attention=True
    )
    for sizes, message in (
        ({"tp": 4, "dpc": 2}, "but was given dpc; did you mean 'dcp'?"),
        (
            {},
            "takes keywords of tp, pp, dp, attn_cp, dcp, ep, moe_dp, enable_dp_attention, but was given none",
        ),
        ({"tp": 4, "dcp": 3}, "dcp_world: tp_size 4 is not divisible by dcp_size 3: "),
        ({"tp": [4, 8]}, "dcp_world: tp_size is [4, 8], but must be an integer of at least 1"),
    ):
        with pytest.raises(TopologyError) as caught:
            make(**sizes)
        assert str(caught.value).startswith("dcp_world: ")
        assert message in str(caught.value)


def test_a_marked_world_runs_by_itself_and_an_unmarked_one_says_what_is_missing() -> None:
    config = ParallelConfig(tp_size=4, dcp_size=2)
    marked = WorldMaker(config)
    assert marked.config is config
    assert marked.run(lambda rank: rank.parallel.ps) == [
        ParallelState.from_config(config, tp_rank=rank) for rank in range(4)
    ]
    assert make(tp=2).run(lambda rank: rank.rank) == World(ParallelConfig(tp_size=2)).run(
        lambda rank: rank.rank
    )
    for use in (lambda: make.config, lambda: make.run(lambda rank: None)):
        with pytest.raises(UsageError) as caught:
            use()
        assert str(caught.value) == (
            "the test has no @pytest.mark.topology(...): say which world, dcp_world(tp=4, dcp=2).run(...)"
        )
    assert issubclass(WorldEndedError, HarnessError)
