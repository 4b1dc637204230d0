"""A state contradicts itself exactly where no config and rank give it: checked against all that exist."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from topology_rules import rule

from harness.errors import TopologyError
from harness.topology import ParallelConfig, ParallelState
from harness.topology.consistency import contradictions, require_consistent
from harness.topology.state import KINDS

SIZES = (1, 2, 4)


def every_config(tp: int) -> list[ParallelConfig]:
    found = []
    for dp, cp, dcp, ep, moe_dp, attention in product(SIZES, SIZES, SIZES, SIZES, SIZES, (False, True)):
        try:
            config = ParallelConfig(
                tp_size=tp,
                dp_size=dp,
                attn_cp_size=cp,
                dcp_size=dcp,
                ep_size=ep,
                moe_dp_size=moe_dp,
                enable_dp_attention=attention,
            )
        except TopologyError:
            continue
        found.append(config)
    return found


# Every state of every topology of up to four ranks a stage: the oracle of what exists.
REAL = {
    state
    for tp in SIZES
    for config in every_config(tp)
    for rank in range(tp)
    for dp_rank in range(1 if config.enable_dp_attention else config.dp_size)
    for state in [ParallelState.from_config(config, tp_rank=rank, dp_rank=dp_rank)]
}


def test_every_state_that_exists_is_consistent() -> None:
    assert len(REAL) > 500
    assert [state for state in REAL if contradictions(state)] == []


@rule
@given(state=st.sampled_from(sorted(REAL, key=repr)), data=st.data())
def test_a_state_contradicts_itself_exactly_where_it_does_not_exist(
    state: ParallelState, data: st.DataObject
) -> None:
    """Up to three sizes and ranks are moved within the sizes that the oracle knows."""
    changes = data.draw(
        st.dictionaries(st.sampled_from([k for k in KINDS if k != "pp"]), st.sampled_from(SIZES), max_size=3)
    )
    values = {f"{kind}_size": size for kind, size in changes.items()}
    for kind in data.draw(st.sets(st.sampled_from([k for k in KINDS if k != "pp"]), max_size=3)):
        values[f"{kind}_rank"] = data.draw(st.integers(0, values.get(f"{kind}_size", 1)))
    try:
        moved = replace(state, **values)
    except TopologyError:
        return
    assert (contradictions(moved) == []) == (moved in REAL), contradictions(moved)


TP8 = ParallelState.from_config(ParallelConfig(tp_size=8, dcp_size=4, ep_size=4), tp_rank=6)
SLICES = "attention cuts each TP group into equal slices"
ATTENTION = "ranks of a TP group are ordered by attn_dp, attn_cp, attn_tp, the last fastest"
DCP = "DCP groups are contiguous slices of equal size of each attention TP group"
EXPERTS = "experts cut each TP group into equal slices"
EXPERT_ORDER = "ranks of a TP group are ordered by moe_dp, moe_ep, moe_tp, the last fastest"
DP = "under DP attention the slices of attention are the DP ranks"
DP_STATE = ParallelState.from_config(
    ParallelConfig(tp_size=8, dp_size=2, attn_cp_size=2, enable_dp_attention=True), tp_rank=7
)


@pytest.mark.parametrize(
    ("state", "messages"),
    [
        (TP8, []),
        (DP_STATE, []),
        (
            replace(TP8, attn_cp_size=2),
            [
                f"tp_size is 8, but attn_tp_size * attn_cp_size * attn_dp_size is 16: {SLICES}",
            ],
        ),
        (
            replace(TP8, attn_tp_rank=5),
            [
                "tp_rank is 6, but attn_dp_rank 0, attn_cp_rank 0 and attn_tp_rank 5 are those of tp_rank 5: "
                + ATTENTION
            ],
        ),
        (
            replace(DP_STATE, attn_cp_rank=0),
            [
                "tp_rank is 7, but attn_dp_rank 1, attn_cp_rank 0 and attn_tp_rank 1 are those of tp_rank 5: "
                + ATTENTION
            ],
        ),
        (replace(TP8, attn_dcp_size=3), [f"attn_tp_size 8 is not divisible by attn_dcp_size 3: {DCP}"]),
        (
            replace(TP8, attn_dcp_rank=3),
            [f"attn_dcp_rank is 3, but tp_rank 6 % attn_dcp_size 4 is 2: {DCP}"],
        ),
        (
            replace(TP8, moe_ep_size=4, moe_dp_size=4),
            [f"tp_size 8 is not divisible by moe_ep_size * moe_dp_size 16: {EXPERTS}"],
        ),
        (
            replace(TP8, moe_ep_rank=1),
            [
                f"tp_rank is 6, but moe_dp_rank 0 and moe_ep_rank 1 are those of tp_rank 2 to 3: {EXPERT_ORDER}"
            ],
        ),
        (
            replace(TP8, moe_ep_rank=2),
            [
                f"tp_rank is 6, but moe_dp_rank 0 and moe_ep_rank 2 are those of tp_rank 4 to 5: {EXPERT_ORDER}"
            ],
        ),
        (
            replace(TP8, moe_ep_size=2, moe_ep_rank=0, moe_dp_size=2, moe_dp_rank=0),
            [
                f"tp_rank is 6, but moe_dp_rank 0 and moe_ep_rank 0 are those of tp_rank 0 to 1: {EXPERT_ORDER}"
            ],
        ),
        (replace(DP_STATE, dp_rank=0), [f"dp_rank is 0, but attn_dp_rank is 1: {DP}"]),
        (replace(DP_STATE, dp_size=4), [f"dp_size is 4, but attn_dp_size is 2: {DP}"]),
        (
            replace(TP8, attn_dcp_rank=1, moe_ep_rank=0),
            [
                f"attn_dcp_rank is 1, but tp_rank 6 % attn_dcp_size 4 is 2: {DCP}",
                f"tp_rank is 6, but moe_dp_rank 0 and moe_ep_rank 0 are those of tp_rank 0 to 1: {EXPERT_ORDER}",
            ],
        ),
    ],
)
def test_each_contradiction_names_both_numbers_and_the_rule(
    state: ParallelState, messages: list[str]
) -> None:
    assert contradictions(state) == messages
    if messages:
        with pytest.raises(TopologyError) as caught:
            require_consistent(state, source="ps")
        assert str(caught.value) == f"ps contradicts itself: {'; '.join(messages)}"
    else:
        require_consistent(state, source="ps")
