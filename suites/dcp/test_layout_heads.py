"""Groups and heads against enumeration.

Ranks fill groups in order, query heads are handed out in order, and a DCP group must hold exactly the KV
heads that its query heads attend to.
"""

from __future__ import annotations

import pytest

from harness.topology import ParallelConfig, group_of, group_q_head_range
from harness.topology.targets.layout import Function, LayoutTarget

GROUPS = [(tp, dcp) for tp in (1, 2, 4, 8) for dcp in (1, 2, 4, 8) if dcp <= tp]
# Multiples of every tp and every number of KV heads; 24 is no power of two.
Q_HEADS = (8, 24, 32)

each_group = pytest.mark.parametrize(("tp", "dcp"), GROUPS)


def fill_groups(ranks: list[int], size: int) -> list[list[int]]:
    """Ranks join the last group until it is full, then open the next."""
    groups: list[list[int]] = []
    for rank in ranks:
        if not groups or len(groups[-1]) == size:
            groups.append([])
        groups[-1].append(rank)
    return groups


def hand_out(items: int, takers: int) -> list[list[int]]:
    """Items 0, 1, 2 ... to takers in order, as many to each: the only even deal that keeps the order."""
    counts = [0] * takers
    for item in range(items):
        counts[item % takers] += 1
    queue = list(range(items))
    return [[queue.pop(0) for _ in range(count)] for count in counts]


def kv_head_of_q_heads(q_heads: int, kv_heads: int) -> dict[int, int]:
    """GQA: neighbouring query heads share a KV head, all KV heads serving as many."""
    return {q: kv for kv, served in enumerate(hand_out(q_heads, kv_heads)) for q in served}


@pytest.mark.layout_functions(Function.TP_GROUPS, Function.DCP_GROUPS, Function.SEAT)
@pytest.mark.parametrize("pp", [1, 2])
@each_group
def test_groups_are_filled_in_rank_order(tp: int, dcp: int, pp: int, layout_target: LayoutTarget) -> None:
    config = ParallelConfig(tp_size=tp, dcp_size=dcp, pp_size=pp)
    stages = fill_groups(list(range(tp * pp)), tp)
    expected = [group for stage in stages for group in fill_groups(stage, dcp)]
    assert layout_target.tp_groups(config) == stages
    assert layout_target.dcp_groups(config) == expected
    for group in expected:
        for seat, rank in enumerate(group):
            assert group_of(layout_target.dcp_groups(config), rank) == group
            assert layout_target.seat(config, rank) == (seat, dcp)


@pytest.mark.layout_functions(Function.DCP_GROUPS)
@pytest.mark.parametrize(("tp", "dcp"), [(4, 2), (8, 2), (8, 4)])
def test_strided_look_alikes_would_need_more_kv_heads(tp: int, dcp: int, layout_target: LayoutTarget) -> None:
    """Groups that take every n-th rank look alike in size, but with a KV head per group they need several."""
    q_heads = hand_out(tp, tp)
    kv_of = kv_head_of_q_heads(tp, tp // dcp)

    def most_heads(groups: list[list[int]]) -> int:
        return max(len({kv_of[q] for rank in group for q in q_heads[rank]}) for group in groups)

    strided = [list(range(first, tp, tp // dcp)) for first in range(tp // dcp)]
    assert most_heads(strided) > 1
    assert most_heads(layout_target.dcp_groups(ParallelConfig(tp_size=tp, dcp_size=dcp))) == 1


@pytest.mark.layout_functions(Function.Q_HEADS)
@each_group
def test_query_heads_are_handed_out_in_order(tp: int, dcp: int, layout_target: LayoutTarget) -> None:
    config = ParallelConfig(tp_size=tp, dcp_size=dcp)
    for num_q_heads in Q_HEADS:
        for rank, share in enumerate(hand_out(num_q_heads, tp)):
            heads = {"num_q_heads": num_q_heads, "num_kv_heads": 8}
            assert layout_target.q_heads(**heads, config=config, rank=rank) == share, (num_q_heads, rank)


@pytest.mark.layout_functions(Function.KV_HEADS, Function.KV_HEAD_COUNT)
@pytest.mark.parametrize("kv_heads", [1, 2, 4, 8])
@each_group
def test_a_group_holds_the_kv_heads_that_its_query_heads_need(
    tp: int, dcp: int, kv_heads: int, layout_target: LayoutTarget
) -> None:
    config = ParallelConfig(tp_size=tp, dcp_size=dcp)
    for num_q_heads in Q_HEADS:
        kv_of = kv_head_of_q_heads(num_q_heads, kv_heads)
        share = hand_out(num_q_heads, tp)
        for group in fill_groups(list(range(tp)), dcp):
            needed = sorted({kv_of[q] for rank in group for q in share[rank]})
            assert layout_target.kv_head_count(num_kv_heads=kv_heads, config=config) == len(needed)
            for rank in group:
                heads = {"num_q_heads": num_q_heads, "num_kv_heads": kv_heads}
                assert layout_target.kv_heads(**heads, config=config, rank=rank) == needed, rank


@pytest.mark.layout_functions(Function.GROUP_Q_HEADS)
@each_group
def test_a_group_sees_the_query_heads_of_its_ranks(tp: int, dcp: int) -> None:
    for num_q_heads in Q_HEADS:
        share = hand_out(num_q_heads, tp)
        for group in fill_groups(list(range(tp)), dcp):
            gathered = [q for rank in group for q in share[rank]]
            for rank in group:
                found = group_q_head_range(num_q_heads=num_q_heads, tp_size=tp, dcp_size=dcp, tp_rank=rank)
                assert list(found) == gathered
