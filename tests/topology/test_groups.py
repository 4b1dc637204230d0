"""Group tables of every axis, against ranks sorted into groups one by one; look-alikes of them are refused."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from topology_rules import configs, rule, states

from harness.errors import TopologyError
from harness.topology import (
    Axis,
    ParallelConfig,
    all_groups,
    check_groups,
    dcp_groups,
    group_of,
    group_table,
    tp_groups,
)

TP8 = ParallelConfig(tp_size=8, pp_size=2, dp_size=2, attn_cp_size=2, dcp_size=2, enable_dp_attention=True)


def sorted_into_groups(config: ParallelConfig, axis: str) -> list[list[int]]:
    """Ranks that stand in nested loops, and together if all their places but that in `axis` are the same."""
    attention = list(
        product(range(config.attn_dp_size), range(config.attn_cp_size), range(config.attn_tp_size))
    )
    experts = list(product(range(config.moe_dp_size), range(config.ep_size), range(config.moe_tp_size)))
    heads = [
        (group, seat)
        for group in range(config.attn_tp_size // config.dcp_size)
        for seat in range(config.dcp_size)
    ]
    replicas = 1 if config.enable_dp_attention or axis != "dp" else config.dp_size
    groups: dict[object, list[int]] = {}
    places = product(range(replicas), range(config.pp_size), range(config.tp_size))
    for number, (_, stage, rank) in enumerate(places):
        attn_dp, attn_cp, attn_tp = attention[rank]
        moe_dp, moe_ep, moe_tp = experts[rank]
        together = {
            "tp": (),
            "pp": (rank,),
            "dp": (attn_cp, attn_tp) if config.enable_dp_attention else (rank,),
            "attn_tp": (attn_dp, attn_cp),
            "attn_cp": (attn_dp, attn_tp),
            "attn_dp": (attn_cp, attn_tp),
            "attn_dcp": (attn_dp, attn_cp, heads[attn_tp][0]),
            "moe_tp": (moe_dp, moe_ep),
            "moe_ep": (moe_dp, moe_tp),
            "moe_dp": (moe_ep, moe_tp),
        }[axis]
        groups.setdefault(together if axis == "pp" else (stage, *together), []).append(number)
    return list(groups.values())


@rule
@given(config=configs(), axis=st.sampled_from(list(Axis)))
def test_a_table_holds_what_sorting_the_ranks_gives(config: ParallelConfig, axis: Axis) -> None:
    table = group_table(config, axis)
    assert sorted(table) == sorted(sorted_into_groups(config, axis))
    assert table == sorted(table)


@rule
@given(config=configs())
def test_each_rank_is_once_in_a_group_of_its_size_at_the_place_of_its_rank(config: ParallelConfig) -> None:
    own = states(config)
    tables = all_groups(config)
    assert list(tables) == list(Axis)
    for axis, table in tables.items():
        ranks = sorted(rank for group in table for rank in group)
        assert ranks == list(range(len(own) if axis is Axis.DP else config.tp_size * config.pp_size))
        if axis is Axis.MOE_TP:
            assert {len(group) * config.ep_size * config.moe_dp_size for group in table} == {config.tp_size}
            continue
        for group in table:
            assert [getattr(own[rank], f"{axis}_rank") for rank in group] == list(range(len(group)))
            assert {getattr(own[rank], f"{axis}_size") for rank in group} == {len(group)}


def test_a_table_by_hand() -> None:
    tables = all_groups(
        ParallelConfig(
            tp_size=8,
            dp_size=2,
            attn_cp_size=2,
            dcp_size=2,
            ep_size=4,
            moe_dp_size=2,
            enable_dp_attention=True,
        )
    )
    assert tables["attn_tp"] == tables["attn_dcp"] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert tables["attn_cp"] == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert tables["attn_dp"] == tables["dp"] == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert tables["moe_ep"] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert tables["moe_dp"] == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert tables["moe_tp"] == [[rank] for rank in range(8)]
    assert tables["pp"] == [[rank] for rank in range(8)]


def test_stages_and_replicas() -> None:
    config = ParallelConfig(tp_size=2, pp_size=2, dp_size=3)
    tables = all_groups(config)
    assert tables["tp"] == tp_groups(config) == [[0, 1], [2, 3]]
    assert tables["pp"] == [[0, 2], [1, 3]]
    assert tables["attn_dcp"] == dcp_groups(config) == [[0], [1], [2], [3]]
    # Replicas are engines of their own; only this table counts over all of them.
    assert tables["dp"] == [[0, 4, 8], [1, 5, 9], [2, 6, 10], [3, 7, 11]]


def test_an_unknown_axis_is_refused() -> None:
    with pytest.raises(TopologyError) as refusal:
        group_table(TP8, "dcp")
    assert str(refusal.value) == (
        "there is no axis 'dcp'; there are"
        " tp, pp, dp, attn_tp, attn_cp, attn_dcp, attn_dp, moe_tp, moe_ep, moe_dp"
    )


def test_a_rank_is_found_in_its_group_and_in_no_other() -> None:
    assert group_of([(0, 1), (2, 3)], 3) == [2, 3]
    with pytest.raises(TopologyError) as refusal:
        group_of([(0, 1), (1, 2)], 1)
    assert str(refusal.value) == "rank 1 is in 2 of the groups [[0, 1], [1, 2]], not in one"
    with pytest.raises(TopologyError, match="rank 9 is in 0 of the groups"):
        group_of([(0, 1)], 9)


@rule
@given(config=configs(), axis=st.sampled_from(list(Axis)), data=st.data())
def test_a_healthy_table_passes_in_any_order_of_groups(
    config: ParallelConfig, axis: Axis, data: st.DataObject
) -> None:
    check_groups(config, axis, data.draw(st.permutations(group_table(config, axis))))


@rule
@given(config=configs(), axis=st.sampled_from(list(Axis)), data=st.data())
def test_any_two_ranks_that_change_places_are_seen(
    config: ParallelConfig, axis: Axis, data: st.DataObject
) -> None:
    table = group_table(config, axis)
    seats = [(row, column) for row, group in enumerate(table) for column in range(len(group))]
    (a, b), (c, d) = data.draw(st.sampled_from(seats)), data.draw(st.sampled_from(seats))
    table[a][b], table[c][d] = table[c][d], table[a][b]
    if sorted(table) == sorted(group_table(config, axis)):  # groups of one, or the same seat twice
        check_groups(config, axis, table)
    else:
        with pytest.raises(TopologyError, match=rf"^{axis} groups \[\["):
            check_groups(config, axis, table)


STRIDED = "are strided (step {step}), but must be contiguous {right}: a group would hold heads that are not"
LOOKALIKES = [
    (ParallelConfig(tp_size=4, dcp_size=2), "attn_dcp", [[0, 2], [1, 3]], 2, [[0, 1], [2, 3]]),
    (
        ParallelConfig(tp_size=8, dcp_size=2),
        "attn_dcp",
        [[0, 4], [1, 5], [2, 6], [3, 7]],
        4,
        [[0, 1], [2, 3], [4, 5], [6, 7]],
    ),
    (
        ParallelConfig(tp_size=4, pp_size=2),
        "tp",
        [[0, 2, 4, 6], [1, 3, 5, 7]],
        2,
        [[0, 1, 2, 3], [4, 5, 6, 7]],
    ),
]


@pytest.mark.parametrize(("config", "axis", "groups", "step", "right"), LOOKALIKES)
def test_strided_lookalikes_of_contiguous_groups_are_refused(
    config: ParallelConfig, axis: str, groups: list, step: int, right: list
) -> None:
    with pytest.raises(TopologyError) as refusal:
        check_groups(config, axis, groups)
    said = str(refusal.value)
    assert said.startswith(f"{axis} groups {groups} " + STRIDED.format(step=step, right=right))
    assert said.endswith("which share no KV head, and rank % size would not be the rank in the group")


DIFFERENCES = [
    (
        "pp",
        [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11], [12, 13], [14, 15]],
        "are contiguous, but must be strided (step 8)",
    ),
    (
        "attn_cp",
        [[first, first + 1] for first in range(0, 16, 2)],
        "are contiguous, but must be strided (step 2)",
    ),
    (
        "attn_dp",
        [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15]],
        "pair other ranks than",
    ),
    ("tp", [list(range(8)), list(range(8, 15))], "do not hold each of 16 ranks once: see ranks [15]"),
    ("tp", [list(range(8)), [*range(7, 15)]], "do not hold each of 16 ranks once: see ranks [7, 15]"),
    ("tp", [list(range(7)), list(range(7, 16))], "have sizes [7, 9], but tp_size is 8"),
    ("attn_dcp", [[rank] for rank in range(16)], "have sizes [1], but attn_dcp_size is 2"),
    ("tp", [list(range(8)), [9, 8, *range(10, 16)]], "hold the right ranks in another order, expected"),
    (
        "attn_dcp",
        [[0, 1], [2, 3], [4, 5], [6, 8], [7, 9], [10, 11], [12, 13], [14, 15]],
        "pair other ranks than",
    ),
]


@pytest.mark.parametrize(("axis", "groups", "words"), DIFFERENCES)
def test_what_is_wrong_with_a_table_is_said(axis: str, groups: list, words: str) -> None:
    with pytest.raises(TopologyError) as refusal:
        check_groups(TP8, axis, groups)
    assert f"{axis} groups {sorted(groups)} {words}" in str(refusal.value)
