"""Configs that cannot be built are refused, also under `python -O`; states number ranks as loops do."""

from __future__ import annotations

import subprocess
import sys
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from topology_rules import rule

from harness.errors import TopologyError
from harness.topology import ParallelConfig, ParallelState, dcp_groups, group_of, tp_groups

ILLEGAL = [
    ({"tp_size": 4, "dcp_size": 3}, "tp_size 4 is not divisible by dcp_size 3"),
    ({"tp_size": 2, "dcp_size": 4}, "tp_size 2 is not divisible by dcp_size 4"),
    ({"tp_size": 8, "attn_cp_size": 3}, "tp_size 8 is not divisible by attn_cp_size 3"),
    ({"tp_size": 8, "attn_cp_size": 4, "dcp_size": 4}, "attn_tp_size 2 is not divisible by dcp_size 4"),
    (
        {"tp_size": 8, "dp_size": 4, "enable_dp_attention": True, "dcp_size": 4},
        "attn_tp_size 2 is not divisible by dcp_size 4",
    ),
    (
        {"tp_size": 4, "dp_size": 3, "enable_dp_attention": True},
        "tp_size 4 is not divisible by dp_size \\* attn_cp_size 3",
    ),
    (
        {"tp_size": 8, "ep_size": 4, "moe_dp_size": 4},
        "tp_size 8 is not divisible by ep_size \\* moe_dp_size 16",
    ),
    ({"tp_size": 0}, "tp_size is 0, but must be an integer of at least 1"),
    ({"dcp_size": -2}, "dcp_size is -2"),
    ({"pp_size": 1.0}, "pp_size is 1.0"),
    ({"dcp_size": True}, "dcp_size is True"),
    ({"enable_dp_attention": "no"}, "enable_dp_attention is 'no', but must be true or false"),
    ({"tp_size": "4"}, "tp_size is '4'"),
]


@pytest.mark.parametrize(("sizes", "message"), ILLEGAL, ids=[str(sizes) for sizes, _ in ILLEGAL])
def test_illegal_configs_are_refused_with_both_numbers(sizes: dict, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        ParallelConfig(**sizes)


SIZES = st.integers(1, 12)


def deals(ranks: int, *cuts: int) -> bool:
    """Whether so many ranks, dealt like cards to slices, and those to slices again, come out even."""
    hands = 1
    for cut in cuts:
        hands *= cut
    dealt = [0] * hands
    for rank in range(ranks):
        dealt[rank % hands] += 1
    return min(dealt) == max(dealt)


@rule
@given(
    tp=SIZES, pp=SIZES, dp=SIZES, cp=SIZES, dcp=SIZES, ep=SIZES, moe_dp=SIZES, sliced=st.booleans()
)  # fmt: skip
def test_a_topology_is_legal_if_its_ranks_can_be_dealt_out(
    tp: int, pp: int, dp: int, cp: int, dcp: int, ep: int, moe_dp: int, sliced: bool
) -> None:
    sizes = {
        "tp_size": tp,
        "pp_size": pp,
        "dp_size": dp,
        "attn_cp_size": cp,
        "dcp_size": dcp,
        "ep_size": ep,
        "moe_dp_size": moe_dp,
        "enable_dp_attention": sliced,
    }
    slices = (dp, cp) if sliced else (cp,)
    if deals(tp, *slices, dcp) and deals(tp, moe_dp, ep):
        config = ParallelConfig(**sizes)
        assert config.world_size == len([None for _ in range(tp) for _ in range(pp)])
        return
    with pytest.raises(TopologyError) as refusal:
        ParallelConfig(**sizes)
    attn_tp = next((n for n in range(1, tp + 1) if n * (dp if sliced else 1) * cp == tp), None)
    if attn_tp is None:
        told = (
            f"tp_size {tp} is not divisible by {'dp_size * attn_cp_size' if sliced else 'attn_cp_size'}"
            f" {dp * cp if sliced else cp}: attention cuts each TP group into equal slices"
        )
    elif not deals(attn_tp, dcp):
        name = "tp_size" if attn_tp == tp else "attn_tp_size"
        told = f"{name} {attn_tp} is not divisible by dcp_size {dcp}: DCP groups"
    else:
        told = (
            f"tp_size {tp} is not divisible by ep_size * moe_dp_size {ep * moe_dp}: experts cut each TP group into"
            " equal slices"
        )
    assert str(refusal.value).startswith(told)


def test_the_rule_of_experts_is_told_in_full() -> None:
    with pytest.raises(TopologyError) as refusal:
        ParallelConfig(tp_size=8, ep_size=2, moe_dp_size=3)
    assert str(refusal.value) == (
        "tp_size 8 is not divisible by ep_size * moe_dp_size 6: experts cut each TP group into equal slices"
    )


def test_the_rule_of_dcp_names_what_is_cut() -> None:
    for cp, cut in ((1, "each TP group"), (2, "each attention TP group")):
        with pytest.raises(TopologyError) as refusal:
            ParallelConfig(tp_size=8, attn_cp_size=cp, dcp_size=3)
        assert str(refusal.value).endswith(f"DCP groups are contiguous slices of equal size of {cut}")


def test_validation_holds_without_assertions() -> None:
    program = (
        "import sys\n"
        "from harness.errors import TopologyError\n"
        "from harness.topology import KVLayout, ParallelConfig, ParallelState, check_groups, kv_head_range\n"
        "from harness.topology import group_table, require_platform, verify_sources\n"
        "two = ParallelConfig(tp_size=4, dcp_size=2)\n"
        f"builds = [lambda s=s: ParallelConfig(**s) for s in {[sizes for sizes, _ in ILLEGAL]!r}]\n"
        "builds += [lambda: KVLayout(dcp_size=2, page_size=6, interleave=4),\n"
        "           lambda: ParallelState.trivial(tp_rank=1),\n"
        "           lambda: kv_head_range(num_kv_heads=3, tp_size=4, dcp_size=2, tp_rank=0),\n"
        "           lambda: check_groups(two, 'attn_dcp', [[0, 2], [1, 3]]),\n"
        "           lambda: group_table(two, 'dcp'),\n"
        "           lambda: require_platform(two, platform='cpu', target='sglang'),\n"
        "           lambda: verify_sources(two, ParallelState.trivial(), None, role='other'),\n"
        "           lambda: ParallelConfig.from_json({'tp_size': 4})]\n"
        "for build in builds:\n"
        "    try:\n"
        "        print('accepted', build())\n"
        "    except TopologyError:\n"
        "        print('refused')\n"
        "print('optimised', sys.flags.optimize)\n"
    )
    done = subprocess.run([sys.executable, "-O", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == ["refused"] * (len(ILLEGAL) + 8) + ["optimised 1"]


def test_importing_topology_imports_neither_torch_nor_pytest() -> None:
    program = "import sys, harness.topology; print({'torch', 'pytest', 'asyncio'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_dp_without_dp_attention_makes_replicas() -> None:
    config = ParallelConfig(tp_size=4, dp_size=3, dcp_size=4)
    state = ParallelState.from_config(config, tp_rank=3, dp_rank=2)
    assert (state.dp_rank, state.dp_size, state.attn_dp_rank, state.attn_dp_size) == (2, 3, 0, 1)
    with pytest.raises(TopologyError, match=r"dp_rank is 3, but must be an integer in 0\.\.2"):
        ParallelState.from_config(config, tp_rank=3, dp_rank=3)


@pytest.mark.parametrize("dp", [1, 2])
@pytest.mark.parametrize("cp", [1, 2])
@pytest.mark.parametrize("dcp", [1, 2])
@pytest.mark.parametrize(("ep", "moe_dp"), [(1, 1), (2, 1), (2, 4), (4, 2)])
def test_states_number_ranks_as_nested_loops_do(dp: int, cp: int, dcp: int, ep: int, moe_dp: int) -> None:
    tp, pp = 8, 2
    config = ParallelConfig(
        tp_size=tp,
        pp_size=pp,
        dp_size=dp,
        attn_cp_size=cp,
        dcp_size=dcp,
        ep_size=ep,
        moe_dp_size=moe_dp,
        enable_dp_attention=True,
    )
    attn_tp = next(n for n in range(1, 9) if n * dp * cp == tp)
    moe_tp = next(n for n in range(1, 9) if n * ep * moe_dp == tp)
    attention = list(product(range(dp), range(cp), range(attn_tp)))
    experts = list(product(range(moe_dp), range(ep), range(moe_tp)))
    dcp_seats = [seat for _ in range(tp) for seat in range(dcp)]
    for pp_rank, tp_rank in product(range(pp), range(tp)):
        state = ParallelState.from_config(config, tp_rank=tp_rank, pp_rank=pp_rank, gpu_id=5)
        assert (state.tp_rank, state.tp_size, state.pp_rank, state.pp_size) == (tp_rank, tp, pp_rank, pp)
        assert (state.attn_dp_rank, state.attn_cp_rank, state.attn_tp_rank) == attention[tp_rank]
        assert (state.attn_dp_size, state.attn_cp_size, state.attn_tp_size) == (dp, cp, attn_tp)
        assert (state.dp_rank, state.dp_size) == (state.attn_dp_rank, dp)
        assert (state.moe_dp_rank, state.moe_ep_rank) == experts[tp_rank][:2]
        assert (state.moe_dp_size, state.moe_ep_size) == (moe_dp, ep)
        assert (state.attn_dcp_rank, state.attn_dcp_size) == (dcp_seats[tp_rank], dcp)
        assert state.gpu_id == 5


def test_dp_attention_derives_dp_rank_and_takes_no_other() -> None:
    config = ParallelConfig(tp_size=4, dp_size=2, enable_dp_attention=True)
    with pytest.raises(TopologyError, match="dp_rank is 1, but under DP attention it follows from tp_rank 0"):
        ParallelState.from_config(config, tp_rank=0, dp_rank=1)


@pytest.mark.parametrize("place", [{"tp_rank": 4}, {"tp_rank": -1}, {"tp_rank": 0, "pp_rank": 2}])
def test_a_place_outside_the_config_is_refused(place: dict) -> None:
    name, value = list(place.items())[-1]
    with pytest.raises(TopologyError) as refusal:
        ParallelState.from_config(ParallelConfig(tp_size=4, pp_size=2), **place)
    last = {"tp_rank": 3, "pp_rank": 1}[name]
    assert str(refusal.value) == f"{name} is {value}, but must be an integer in 0..{last}"


def test_trivial_is_one_rank_of_one() -> None:
    state = ParallelState.trivial()
    assert {getattr(state, name) for name in state.__slots__ if name.endswith("_rank")} == {0}
    assert {getattr(state, name) for name in state.__slots__ if name.endswith("_size")} == {1}
    assert state.gpu_id is None
    apart = ParallelState.trivial(attn_dcp_size=4, attn_dcp_rank=3, gpu_id=7)
    assert (apart.attn_dcp_size, apart.attn_dcp_rank, apart.gpu_id, apart.tp_size) == (4, 3, 7, 1)
    names = "tp_rank, pp_rank, dp_rank, attn_tp_rank, attn_cp_rank, attn_dcp_rank, attn_dp_rank, moe_ep_rank"
    with pytest.raises(TopologyError, match=f"dcp_size is no field of ParallelState; there are {names}, "):
        ParallelState.trivial(dcp_size=4)
    with pytest.raises(TopologyError, match="attn_dcp_rank is 1"):
        ParallelState.trivial(attn_dcp_rank=1)


def test_a_draft_keeps_its_whole_kv_on_each_rank() -> None:
    config = ParallelConfig(tp_size=8, dcp_size=4, pp_size=2)
    target = ParallelState.from_config(config, tp_rank=6, pp_rank=1)
    draft = target.for_draft()
    assert (draft.attn_dcp_rank, draft.attn_dcp_size, draft.pp_rank) == (0, 1, 0)
    assert (draft.tp_rank, draft.tp_size, draft.attn_tp_rank, draft.pp_size) == (6, 8, 6, 2)
    assert (target.attn_dcp_rank, target.attn_dcp_size) == (2, 4)


def test_config_and_state_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        ParallelConfig().tp_size = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        ParallelState.trivial().tp_rank = 1  # type: ignore[misc]


def test_groups_never_mix_stages_and_a_rank_is_in_one() -> None:
    config = ParallelConfig(tp_size=4, dcp_size=2, pp_size=2)
    assert tp_groups(config) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert dcp_groups(config) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert group_of(dcp_groups(config), 5) == [4, 5]
    with pytest.raises(TopologyError, match="rank 8 is in 0 of the groups"):
        group_of(tp_groups(config), 8)
    with pytest.raises(TopologyError, match="rank 1 is in 2 of the groups"):
        group_of([[0, 1], [1, 2]], 1)
