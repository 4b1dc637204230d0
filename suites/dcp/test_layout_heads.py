"""Groups and heads against enumeration.

Ranks fill groups in order, query heads are handed out in order, and a DCP group must hold exactly the KV
heads that its query heads attend to.
"""

from __future__ import annotations

import pytest

from harness.topology import (
    ParallelConfig,
    ParallelState,
    dcp_groups,
    group_of,
    group_q_head_range,
    kv_head_range,
    q_head_range,
    tp_groups,
)

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


@pytest.mark.parametrize("pp", [1, 2])
@each_group
def test_groups_are_filled_in_rank_order(tp: int, dcp: int, pp: int) -> None:
    config = ParallelConfig(tp_size=tp, dcp_size=dcp, pp_size=pp)
    stages = fill_groups(list(range(tp * pp)), tp)
    expected = [group for stage in stages for group in fill_groups(stage, dcp)]
    assert tp_groups(config) == stages
    assert dcp_groups(config) == expected
    for group in expected:
        for seat, rank in enumerate(group):
            assert group_of(dcp_groups(config), rank) == group
            stage = next(index for index, ranks in enumerate(stages) if rank in ranks)
            state = ParallelState.from_config(config, tp_rank=stages[stage].index(rank), pp_rank=stage)
            assert (state.attn_dcp_rank, state.attn_dcp_size) == (seat, dcp)


@pytest.mark.parametrize(("tp", "dcp"), [(4, 2), (8, 2), (8, 4)])
def test_strided_look_alikes_would_need_more_kv_heads(tp: int, dcp: int) -> None:
    """Groups that take every n-th rank look alike in size, but with a KV head per group they need several."""
    q_heads = hand_out(tp, tp)
    kv_of = kv_head_of_q_heads(tp, tp // dcp)

    def most_heads(groups: list[list[int]]) -> int:
        return max(len({kv_of[q] for rank in group for q in q_heads[rank]}) for group in groups)

    strided = [list(range(first, tp, tp // dcp)) for first in range(tp // dcp)]
    assert most_heads(strided) > 1
    assert most_heads(dcp_groups(ParallelConfig(tp_size=tp, dcp_size=dcp))) == 1


@pytest.mark.parametrize("kv_heads", [1, 2, 4, 8])
@each_group
def test_a_group_holds_the_kv_heads_that_its_query_heads_need(tp: int, dcp: int, kv_heads: int) -> None:
    for q_heads in Q_HEADS:
        kv_of = kv_head_of_q_heads(q_heads, kv_heads)
        share = hand_out(q_heads, tp)
        for group in fill_groups(list(range(tp)), dcp):
            gathered = [q for rank in group for q in share[rank]]
            needed = sorted({kv_of[q] for q in gathered})
            for rank in group:
                sizes = {"tp_size": tp, "dcp_size": dcp, "tp_rank": rank}
                assert list(kv_head_range(num_kv_heads=kv_heads, **sizes)) == needed
                assert list(group_q_head_range(num_q_heads=q_heads, **sizes)) == gathered
                assert list(q_head_range(num_q_heads=q_heads, tp_size=tp, tp_rank=rank)) == share[rank]
