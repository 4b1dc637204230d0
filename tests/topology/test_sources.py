"""Three sources that agree give an empty report; each value that does not is reported, alone and in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from topology_rules import MAX_RANKS, any_state, configs, rule, states

from harness.errors import TopologyError
from harness.topology import (
    ParallelConfig,
    ParallelState,
    Role,
    compare_states,
    get_parallel,
    inject,
    install_parallel,
    uninstall_parallel,
    verify_sources,
)

CONFIG = ParallelConfig(tp_size=8, dcp_size=4, pp_size=2)
STATE = ParallelState.from_config(CONFIG, tp_rank=6, pp_rank=1, gpu_id=6)
FIELDS = [field.name for field in fields(ParallelState)]
SEED_AXES = {
    "tp_size": "tp_size",
    "pp_size": "pp_size",
    "dp_size": "dp_size",
    "attn_cp_size": "attn_cp_size",
    "dcp_size": "attn_dcp_size",
    "ep_size": "moe_ep_size",
    "moe_dp_size": "moe_dp_size",
}


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    uninstall_parallel()
    yield
    uninstall_parallel()


def as_role(state: ParallelState, role: Role) -> ParallelState:
    return state.for_draft() if role is Role.DRAFT else state


@pytest.mark.parametrize("tp", range(1, MAX_RANKS + 1))
def test_every_rank_of_every_dcp_topology_is_healthy(tp: int) -> None:
    for pp in {1, 2, 3, MAX_RANKS // tp}:
        for dcp in (size for size in range(1, tp + 1) if tp % size == 0):
            config = ParallelConfig(tp_size=tp, dcp_size=dcp, pp_size=pp)
            for state in states(config):
                assert verify_sources(config, state, state) == []


@rule
@given(config=configs(), role=st.sampled_from(Role))
def test_every_rank_of_any_topology_is_healthy(config: ParallelConfig, role: Role) -> None:
    for state in states(config):
        assert verify_sources(config, as_role(state, role), state, role=role) == []
        assert config.dcp_size > 1 or verify_sources(config, as_role(state, role), None, role=role) == []


@rule
@given(config=configs(), data=st.data())
def test_one_wrong_value_of_ps_or_live_is_reported_alone(config: ParallelConfig, data: st.DataObject) -> None:
    role = data.draw(st.sampled_from(Role))
    target = replace(data.draw(any_state(config)), gpu_id=data.draw(st.none() | st.integers(0, 7)))
    sources = {"ps": as_role(target, role), "live": target}
    source, axis = data.draw(st.sampled_from(sorted(sources))), data.draw(st.sampled_from(FIELDS))
    # A draft is in the first stage whatever its target's stage is, so nothing else tells that.
    assume((role, source, axis) != (Role.DRAFT, "live", "pp_rank"))
    right = getattr(sources[source], axis)
    wrong = data.draw(values_of(sources[source], axis).filter(lambda value: value != right))
    sources[source] = replace(sources[source], **{axis: wrong})
    (found,) = verify_sources(config, **sources, role=role)
    assert found.axis == axis
    assert found.values[source] == wrong


def values_of(state: ParallelState, axis: str) -> st.SearchStrategy[int | None]:
    """What a state may say of this axis: a rank below its size, a size above its rank."""
    if axis == "gpu_id":
        return st.none() | st.integers(0, 7)
    kind, _, what = axis.rpartition("_")
    if what == "rank":
        # A size of 1 leaves no other rank: then the size is part of what is wrong, and another field is drawn.
        return st.integers(0, max(getattr(state, f"{kind}_size") - 1, 0))
    return st.integers(getattr(state, f"{kind}_rank") + 1, 2 * MAX_RANKS)


@rule
@given(config=configs(), data=st.data())
def test_one_wrong_launch_argument_is_reported_alone(config: ParallelConfig, data: st.DataObject) -> None:
    role = data.draw(st.sampled_from(Role))
    target = data.draw(any_state(config))
    argument = data.draw(st.sampled_from(sorted(SEED_AXES)))
    seed = data.draw(other_configs(config, argument))
    if seed is None:  # no other size of this one argument can be built
        return
    (found,) = verify_sources(seed, as_role(target, role), target, role=role)
    assert found.axis == SEED_AXES[argument]
    assert found.values["seed"] == getattr(seed, argument)


@pytest.mark.parametrize("argument", SEED_AXES)
def test_each_launch_argument_is_compared(argument: str) -> None:
    config = ParallelConfig(tp_size=16, dp_size=2, enable_dp_attention=True)
    state = ParallelState.from_config(config, tp_rank=0)
    (found,) = verify_sources(replace(config, **{argument: 4}), state, state)
    assert (found.axis, found.values["seed"]) == (SEED_AXES[argument], 4)


def other_configs(config: ParallelConfig, argument: str) -> st.SearchStrategy[ParallelConfig | None]:
    found = []
    for size in range(1, 2 * MAX_RANKS + 1):
        try:
            found.append(replace(config, **{argument: size}))
        except TopologyError:
            continue
    return st.sampled_from([other for other in found if other != config] or [None])


@pytest.mark.parametrize("sliced", [True, False])
def test_the_switch_of_dp_attention_is_reported_as_its_slices(sliced: bool) -> None:
    config = ParallelConfig(tp_size=8, dp_size=2, dcp_size=2, enable_dp_attention=sliced)
    state = states(config)[5]
    (found,) = verify_sources(replace(config, enable_dp_attention=not sliced), state, state)
    assert found.axis == "attn_dp_size"
    assert found.values == {"seed": 1 if sliced else 2, "ps": 2 if sliced else 1, "live": 2 if sliced else 1}


POOL4 = "the KV pool is sized four times too large: a request admitted that can never be scheduled"
OFF = "DCP is off: every rank keeps the whole KV, and "
OFF_RANK = (
    "attn_dcp_rank: ps 2, live 0: differs only because DCP is off in live (see attn_dcp_size): no rows change"
)
OTHER_RANK = "attn_dcp_rank: ps 2, live 0: a rank writing its neighbour's rows: those tokens are kept twice"
DRAFT = STATE.for_draft()
# Its ranks would be 0 in a group as well, so that only the sizes can tell.
FIRST_OFF = ParallelState.from_config(replace(CONFIG, dcp_size=1), tp_rank=4, pp_rank=1, gpu_id=4)

# What was made to differ by hand, and the lines that must be reported.
DIVERGENCES = {
    "live is off while ps says 4": (
        {"live": replace(STATE, attn_dcp_rank=0, attn_dcp_size=1)},
        [OFF_RANK, f"attn_dcp_size: seed 4, ps 4, live 1: {OFF}{POOL4}"],
    ),
    "no group is up": (
        {"live": None},
        [OFF_RANK, f"attn_dcp_size: seed 4, ps 4, live 1: no DCP group is up, so {OFF}{POOL4}"],
    ),
    "the arguments say 8": (
        {"seed": replace(CONFIG, dcp_size=8)},
        [
            (
                "attn_dcp_size: seed 8, ps 4, live 4: the scheduler's cap reads a number two times"
                " larger than the pool: a request admitted that can never be scheduled"
            )
        ],
    ),
    "the arguments say 2": (
        {"seed": replace(CONFIG, dcp_size=2)},
        [
            (
                "attn_dcp_size: seed 2, ps 4, live 4: the scheduler's cap reads a number two times"
                " smaller than the pool: requests refused that would fit"
            )
        ],
    ),
    "ps took its size before the groups were up": (
        {"ps": replace(STATE, attn_dcp_rank=0, attn_dcp_size=1)},
        [
            "attn_dcp_rank: ps 0, live 2: a rank writing its neighbour's rows",
            (
                "attn_dcp_size: seed 4, ps 1, live 4: the KV pool is sized four times too small: tokens"
                " are dealt to ranks that it does not count, and requests refused that would fit"
            ),
        ],
    ),
    "three different sizes": (
        {
            "seed": replace(CONFIG, dcp_size=8),
            "live": replace(STATE, attn_dcp_rank=0, attn_dcp_size=2),
        },
        [
            OTHER_RANK,
            (
                "attn_dcp_size: seed 8, ps 4, live 2: the KV pool is sized two times too large: a request"
                " admitted that can never be scheduled; and by the launch arguments (8 against 4) the"
                " scheduler's cap reads a number two times larger than the pool: a request admitted that can"
                " never be scheduled"
            ),
        ],
    ),
    "three different sizes, and no group is up": (
        {"seed": replace(CONFIG, dcp_size=2), "live": None},
        [
            OFF_RANK,
            (
                f"attn_dcp_size: seed 2, ps 4, live 1: no DCP group is up, so {OFF}{POOL4}; and by the launch"
                " arguments (2 against 4) the scheduler's cap reads a number two times smaller than the pool:"
                " requests refused that would fit"
            ),
        ],
    ),
    "three different sizes, and only ps is off": (
        {"seed": replace(CONFIG, dcp_size=8), "ps": replace(STATE, attn_dcp_rank=0, attn_dcp_size=1)},
        [
            "attn_dcp_rank: ps 0, live 2: a rank writing its neighbour's rows",
            (
                "attn_dcp_size: seed 8, ps 1, live 4: the KV pool is sized four times too small: tokens are"
                " dealt to ranks that it does not count, and requests refused that would fit; and by the"
                " launch arguments (8 against 1) the scheduler's cap reads a number eight times larger than"
                " the pool: a request admitted that can never be scheduled"
            ),
        ],
    ),
    "live is off, and the rank is another's too": (
        {"ps": replace(STATE, attn_dcp_rank=3), "live": None},
        [
            "attn_dcp_rank: ps 3, live 0: a rank writing its neighbour's rows",
            f"attn_dcp_size: seed 4, ps 4, live 1: no DCP group is up, so {OFF}{POOL4}",
        ],
    ),
    "a draft with its target's layout under other arguments": (
        {"seed": replace(CONFIG, dcp_size=8), "ps": replace(STATE, pp_rank=0), "role": "draft"},
        [
            "attn_dcp_rank: ps 2, live 2, expected 0: a draft rank",
            (
                "attn_dcp_size: seed 8, ps 4, live 4: the draft's KV pool is sized four times too large, and its"
                " attention looks at a shard of what it keeps whole; and by the launch arguments (8 against 4)"
                " the scheduler's cap reads a number two times larger than the pool"
            ),
        ],
    ),
    "three different TP sizes": (
        {"seed": replace(CONFIG, tp_size=4), "live": replace(STATE, tp_size=7)},
        [
            (
                "tp_size: seed 4, ps 8, live 7: weights are cut into more parts than ranks hold: what the missing"
                " ranks were to compute is never summed; and by the launch arguments (4 against 8) weights are"
                " cut into fewer parts than ranks hold"
            )
        ],
    ),
    "another rank of the DCP group": (
        {"ps": replace(STATE, attn_dcp_rank=3)},
        [
            (
                "attn_dcp_rank: ps 3, live 2: a rank writing its neighbour's rows: those tokens are kept"
                " twice, its own by nobody"
            )
        ],
    ),
    "ps and live agree on the wrong rank": (
        {"ps": replace(STATE, attn_dcp_rank=3), "live": replace(STATE, attn_dcp_rank=3)},
        ["attn_dcp_rank: ps 3, live 3, expected 2: a rank writing its neighbour's rows"],
    ),
    "a draft with the layout of its target": (
        {"ps": replace(STATE, pp_rank=0), "role": "draft"},
        [
            (
                "attn_dcp_rank: ps 2, live 2, expected 0: a draft rank that keeps its whole KV takes"
                " itself for one of several and skips the tokens of the others"
            ),
            (
                "attn_dcp_size: seed 4, ps 4, live 4, expected 1: the draft's KV pool is sized four"
                " times too large, and its attention looks at a shard of what it keeps whole"
            ),
        ],
    ),
    "a draft in the last stage": (
        {"ps": replace(DRAFT, pp_rank=1), "role": "draft"},
        ["pp_rank: ps 1, live 1, expected 0: the draft waits for another stage's activations"],
    ),
    "a draft without groups": (
        {"ps": DRAFT, "live": None, "role": "draft"},
        [
            (
                "attn_dcp_size: seed 4, ps 1, live 1: no DCP group is up, so DCP is off: every rank"
                " keeps the whole KV, and the scheduler's cap reads a number four times larger than the"
                " pool: a request admitted that can never be scheduled"
            )
        ],
    ),
    "the target's group is off under a draft": (
        {"ps": DRAFT, "live": replace(STATE, attn_dcp_rank=0, attn_dcp_size=1), "role": "draft"},
        [
            "attn_dcp_size: seed 4, ps 1, live 1: DCP is off: every rank keeps the whole KV, and the scheduler's cap"
        ],
    ),
    "the TP group is half as large": (
        {"live": replace(STATE, tp_size=7)},
        [
            (
                "tp_size: seed 8, ps 8, live 7: weights are cut into more parts than ranks hold: what"
                " the missing ranks were to compute is never summed"
            )
        ],
    ),
    "too many attention heads a rank": (
        {"ps": replace(STATE, attn_tp_size=7)},
        [
            "attn_tp_size: ps 7, live 8: a rank computes too many attention heads: its neighbour's heads are computed"
        ],
    ),
    "another rank's weights": (
        {"ps": replace(STATE, tp_rank=5)},
        [
            "tp_rank: ps 5, live 6: a rank loading its neighbour's weights: one part is summed twice, another never"
        ],
    ),
    "another rank's device": (
        {"ps": replace(STATE, gpu_id=5)},
        ["gpu_id: ps 5, live 6: a rank computing on its neighbour's device"],
    ),
    "a first rank of a group, built without one": (
        {"ps": FIRST_OFF, "live": FIRST_OFF},
        [
            "attn_dcp_size: seed 4, ps 1, live 1: DCP is off: every rank keeps the whole KV, and the scheduler's cap"
        ],
    ),
    "a first rank's draft without groups": (
        {"ps": FIRST_OFF.for_draft(), "live": None, "role": "draft"},
        [
            "attn_dcp_size: seed 4, ps 1, live 1: no DCP group is up, so DCP is off: every rank keeps the whole KV, and"
        ],
    ),
    "experts for twice the ranks": (
        {"seed": replace(CONFIG, ep_size=2)},
        ["moe_ep_size: seed 2, ps 1, live 1: experts are dealt to ranks that do not exist"],
    ),
}


@pytest.mark.parametrize("name", DIVERGENCES)
def test_a_divergence_is_told_with_values_and_consequence(name: str) -> None:
    made, lines = DIVERGENCES[name]
    found = [
        str(divergence)
        for divergence in verify_sources(**({"seed": CONFIG, "ps": STATE, "live": STATE} | made))
    ]
    assert len(found) == len(lines)
    assert [line for line, start in zip(found, lines, strict=True) if not line.startswith(start)] == []


# Both directions of each size, ps against live; then every rank.
SIZES = {
    "tp_size": ("is never summed", "summed more than once"),
    "pp_size": ("the last layers are never run", "some run in two stages"),
    "dp_size": ("never answered", "get no requests"),
    "attn_tp_size": ("are computed by nobody", "are computed twice"),
    "attn_cp_size": ("a piece that nobody computes", "a piece computed twice"),
    "attn_dcp_size": ("can never be scheduled", "requests refused that would fit"),
    "attn_dp_size": ("the collective never ends", "tokens of other slices are left out"),
    "moe_ep_size": ("tokens routed to them are lost", "are summed twice"),
    "moe_dp_size": ("the collective never ends", "never reach the experts held here"),
}


@pytest.mark.parametrize("axis", SIZES)
def test_the_consequence_of_a_size_goes_by_the_direction(axis: str) -> None:
    config = ParallelConfig(tp_size=4)
    small = ParallelState.from_config(config, tp_rank=1)
    for ps, words in zip((5, 3), SIZES[axis], strict=True):
        live = replace(small, **{axis: 4})
        lines = {
            found.axis: str(found) for found in verify_sources(config, replace(live, **{axis: ps}), live)
        }
        assert f"ps {ps}, live 4" in lines[axis]
        told, _, by_the_arguments = lines[axis].partition("; and by the launch arguments (1 against ")
        assert told.endswith(words)
        assert by_the_arguments.startswith(f"{ps}) ") == ("seed 1, " in told)


RANKS = {
    "tp_rank": "its neighbour's weights",
    "pp_rank": "its neighbour's layers",
    "dp_rank": "under its neighbour's number",
    "attn_tp_rank": "its neighbour's attention heads",
    "attn_cp_rank": "its neighbour's piece of the prompt",
    "attn_dcp_rank": "its neighbour's rows",
    "attn_dp_rank": "its neighbour's slice of the batch",
    "moe_ep_rank": "its neighbour's experts",
    "moe_dp_rank": "its neighbour's tokens through the experts",
    "gpu_id": "its neighbour's device",
}


@pytest.mark.parametrize("axis", RANKS)
def test_the_consequence_of_a_rank_names_what_is_the_neighbours(axis: str) -> None:
    live = ParallelState(**{name: 2 if name.endswith("_size") else 0 for name in FIELDS})
    lines = {
        found.axis: str(found)
        for found in verify_sources(ParallelConfig(tp_size=2), replace(live, **{axis: 1}), live)
    }
    assert RANKS[axis] in lines[axis]
    assert "ps 1, live 0" in lines[axis]


def test_numbers_beyond_words_and_halves_are_told_as_numbers() -> None:
    config = ParallelConfig(tp_size=36, dcp_size=36)
    state = ParallelState.from_config(config, tp_rank=0)
    for live, times in ((2, "18"), (12, "three"), (24, "1.5"), (6, "six")):
        (found,) = verify_sources(config, state, replace(state, attn_dcp_size=live))
        assert f"the KV pool is sized {times} times too large" in found.consequence


def test_the_live_source_is_asked_as_it_stands() -> None:
    assert [found.axis for found in verify_sources(CONFIG, STATE, get_parallel())] == [
        "attn_dcp_rank",
        "attn_dcp_size",
    ]
    install_parallel(STATE)
    (rank, size) = verify_sources(CONFIG, STATE, get_parallel())
    assert "DCP is off" in size.consequence
    assert "no DCP group is up" not in size.consequence
    assert rank.values == {"ps": 2, "live": 0}
    uninstall_parallel()
    install_parallel(STATE, groups={"dcp": (4, 5, 6, 7)})
    assert verify_sources(CONFIG, STATE, get_parallel()) == []
    with inject(CONFIG, rank=3) as worker:
        assert verify_sources(worker.seed, worker.ps, worker) == []
        assert verify_sources(worker.seed, STATE, worker) != []


def test_a_draft_is_healthy_where_its_target_is_not_asked() -> None:
    assert verify_sources(CONFIG, DRAFT, STATE, role=Role.DRAFT) == []
    assert {found.axis for found in verify_sources(CONFIG, DRAFT, STATE)} == {
        "pp_rank",
        "attn_dcp_rank",
        "attn_dcp_size",
    }
    with pytest.raises(TopologyError) as refusal:
        verify_sources(CONFIG, DRAFT, STATE, role="drafter")
    assert str(refusal.value) == "there is no role 'drafter'; there are target, draft"


WRONG_TYPES = [
    (
        (CONFIG, CONFIG, STATE),
        "ps is ",
        ", but must be a ParallelState; of a config, say ParallelState.from_config(config, tp_rank=...)",
    ),
    (
        (CONFIG, STATE, CONFIG),
        "live is ",
        (
            ", but must be a ParallelState, get_parallel(), or None while no group is up; of a config, say"
            " ParallelState.from_config(config, tp_rank=...)"
        ),
    ),
    (
        (CONFIG, STATE, 5),
        "live is 5",
        ", but must be a ParallelState, get_parallel(), or None while no group is up",
    ),
    ((CONFIG, None, STATE), "ps is None", ", but must be a ParallelState"),
    (({}, STATE, STATE), "seed is {}", ", but must be a ParallelConfig"),
    ((STATE, STATE, STATE), "seed is ParallelState(", ", but must be a ParallelConfig"),
]


@pytest.mark.parametrize(("given", "start", "end"), WRONG_TYPES)
def test_a_source_of_another_type_is_named_with_what_is_allowed(
    given: tuple[Any, Any, Any], start: str, end: str
) -> None:
    with pytest.raises(TopologyError) as refusal:
        verify_sources(*given)
    assert str(refusal.value).startswith(start)
    assert str(refusal.value).endswith(end)


def test_a_construction_site_that_is_no_state_is_named() -> None:
    with pytest.raises(TopologyError, match=r"^one_batch is None, but must be a ParallelState$"):
        compare_states(STATE, None)  # type: ignore[arg-type]
    with pytest.raises(
        TopologyError, match=r"^launcher is ParallelConfig\(.*from_config\(config, tp_rank=\.\.\.\)$"
    ):
        compare_states(CONFIG, STATE, names=("launcher", "benchmark"))  # type: ignore[arg-type]


def test_sources_that_fit_no_topology_at_all_are_still_compared() -> None:
    odd = ParallelState.trivial(tp_size=9, tp_rank=8, attn_cp_size=2)
    found = verify_sources(ParallelConfig(tp_size=4), odd, replace(odd, gpu_id=3))
    assert [str(line).split(":")[0] for line in found] == ["tp_size", "attn_cp_size", "gpu_id"]


@rule
@given(config=configs(), data=st.data())
def test_two_construction_sites_differ_in_exactly_the_fields_that_differ(
    config: ParallelConfig, data: st.DataObject
) -> None:
    one, other = data.draw(any_state(config)), data.draw(any_state(config))
    found = compare_states(one, other)
    assert [line.axis for line in found] == [
        name for name in FIELDS if asdict(one)[name] != asdict(other)[name]
    ]
    assert all(
        line.values == {"scheduler": getattr(one, line.axis), "one_batch": getattr(other, line.axis)}
        for line in found
    )


def test_construction_sites_are_named_in_the_report() -> None:
    (line,) = compare_states(STATE, replace(STATE, gpu_id=1), names=("launcher", "benchmark"))
    assert str(line) == (
        "gpu_id: launcher 6, benchmark 1: benchmark runs another topology than launcher: what it shows"
        " is not true of launcher"
    )


def test_what_an_engine_told_is_read_back() -> None:
    assert ParallelConfig.from_json(asdict(CONFIG)) == CONFIG
    assert ParallelState.from_json(asdict(STATE)) == STATE


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"tp_size": 8}, "a seed lacks pp_size; its fields are tp_size, pp_size, dp_size"),
        ({**asdict(CONFIG), "cp_size": 1}, "a seed has an unknown cp_size; its fields are"),
        ({**asdict(CONFIG), "dcp_size": 3}, "tp_size 8 is not divisible by dcp_size 3"),
        (
            None,
            (
                "a seed is None, but must be a mapping of tp_size, pp_size, dp_size, attn_cp_size, dcp_size, ep_size,"
                " moe_dp_size, enable_dp_attention"
            ),
        ),
    ],
)
def test_a_seed_that_was_told_wrong_is_refused(told: object, words: str) -> None:
    with pytest.raises(TopologyError) as refusal:
        ParallelConfig.from_json(told)
    assert str(refusal.value).startswith(words)


def test_a_state_that_was_told_wrong_is_refused() -> None:
    with pytest.raises(
        TopologyError, match=r"^a worker's state lacks tp_rank; its fields are tp_rank, tp_size"
    ):
        ParallelState.from_json({})
    with pytest.raises(TopologyError, match="attn_dcp_rank is 4"):
        ParallelState.from_json({**asdict(STATE), "attn_dcp_rank": 4})
