"""Whether the three sources of one worker's topology agree: config *seed*, per-worker *ps*, *live*.

Called by the check `sources` on what a running engine tells of each rank, and by tests. Nothing here knows
which source is right: all of them are held against the topology that leaves the fewest of their values
unexplained, so that one wrong value is reported alone, and not everything that would follow from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from itertools import product

from harness.errors import TopologyError
from harness.topology.config import ParallelConfig
from harness.topology.consequences import LIVE_IS_OFF, Contrast, consequence
from harness.topology.live import LiveParallel
from harness.topology.resolve import require_config
from harness.topology.state import ParallelState

# The axes of every comparison, in field order.
FIELDS = tuple(field.name for field in fields(ParallelState))
# Where a draft model's worker differs from its target's on purpose.
DRAFT_FIELDS = ("pp_rank", "attn_dcp_rank", "attn_dcp_size")

Values = dict[str, int | None]


class Role(StrEnum):
    """Whose worker it is. A draft model's shares process and groups with the target's, but not its KV layout."""

    TARGET = "target"
    DRAFT = "draft"


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """One field of ParallelState on which sources differ.

    `values` are what each source says, left out where it says nothing; `expected` stands among them where all
    sources agree on what does not follow from the sizes, the place of the rank and its role.
    """

    axis: str
    values: Mapping[str, int | None]
    consequence: str

    @property
    def said(self) -> str:
        """`seed 4, ps 4, live 1`."""
        return ", ".join(f"{source} {value}" for source, value in self.values.items())

    def __str__(self) -> str:
        return f"{self.axis}: {self.said}: {self.consequence}"


def verify_sources(
    seed: ParallelConfig,
    ps: ParallelState,
    live: ParallelState | LiveParallel | None,
    *,
    role: Role | str = Role.TARGET,
) -> list[Divergence]:
    """Every field on which the sources of one worker differ, in field order; empty for a healthy worker.

    `live` is None where no group is up: DCP reads then answer "off", and nothing else can be compared. The ps of
    a draft must say that it keeps its whole KV (dcp 1) and runs in the first stage; its live source is the
    target's. Raises TopologyError for a role that does not exist, and for a source of another type.
    """
    require_config("seed", seed)
    _require_state("ps", ps)
    if not isinstance(live, LiveParallel | None):
        _require_state("live", live, "a ParallelState, get_parallel(), or None while no group is up")
    try:
        role = Role(role)
    except ValueError as error:
        raise TopologyError(f"there is no role {role!r}; there are {', '.join(Role)}") from error
    worker = _Worker(seed, ps, read_live(live) if isinstance(live, LiveParallel) else live, role)
    return min((worker.unexplained_by(truth) for truth in worker.candidates()), key=len)


def compare_states(
    a: ParallelState, b: ParallelState, *, names: tuple[str, str] = ("scheduler", "one_batch")
) -> list[Divergence]:
    """Every field on which two places that build a worker's state from the same arguments differ.

    Raises TopologyError for what is no ParallelState.
    """
    first, second = names
    for name, state in ((first, a), (second, b)):
        _require_state(name, state)
    return [
        Divergence(
            axis=axis,
            values={first: getattr(a, axis), second: getattr(b, axis)},
            consequence=f"{second} runs another topology than {first}: what it shows is not true of {first}",
        )
        for axis in FIELDS
        if getattr(a, axis) != getattr(b, axis)
    ]


def _require_state(name: str, given: object, allowed: str = "a ParallelState") -> None:
    if isinstance(given, ParallelState):
        return
    # A config says nothing of which rank it is.
    hint = "; of a config, say ParallelState.from_config(config, tp_rank=...)"
    raise TopologyError(
        f"{name} is {given!r}, but must be {allowed}{hint if isinstance(given, ParallelConfig) else ''}"
    )


def read_live(live: LiveParallel) -> ParallelState | None:
    """What the live source answers now: DCP by its safe reads, the rest as installed; None where nothing is."""
    snapshot = live.snapshot()
    if snapshot.state is None or snapshot.dcp_state is not None:
        return snapshot.state
    return replace(snapshot.state, **_SAFE)


@dataclass(frozen=True, slots=True)
class _Worker:
    """The sources of one worker; `live` is None where no group is up."""

    seed: ParallelConfig
    ps: ParallelState
    live: ParallelState | None
    role: Role

    def candidates(self) -> list[ParallelState]:
        """The states that the target's worker at this place may really have, by the word of any source.

        Where no source's sizes and place fit together, the ps stands for itself: nothing can be derived then.
        """
        states = dict.fromkeys((self.ps, self.live or self.ps))
        configs = [self.seed, *(config for state in states for config in _configs_of(state, self.seed))]
        places = product(*(dict.fromkeys(getattr(state, name) for state in states) for name in _PLACE))
        found = [
            _state_at(config, place, self.ps.gpu_id) for place in places for config in dict.fromkeys(configs)
        ]
        return list(dict.fromkeys(state for state in found if state is not None)) or [self.ps]

    def unexplained_by(self, truth: ParallelState) -> list[Divergence]:
        """Every field of which some source does not say what it should, if this is the worker's true state."""
        own = truth.for_draft() if self.role is Role.DRAFT else truth
        return list(self._divergences(truth, own))

    def _divergences(self, truth: ParallelState, own: ParallelState) -> Iterator[Divergence]:
        seed = self._seed_says(truth)
        for axis in FIELDS:
            values: Values = {"seed": seed[axis]} if axis in seed else {}
            values["ps"] = getattr(self.ps, axis)
            if self.live is not None or axis in _SAFE:
                values["live"] = _SAFE[axis] if self.live is None else getattr(self.live, axis)
            right = {source: getattr(own if source == "ps" else truth, axis) for source in values}
            if values != right:
                shown = values if len(set(values.values())) > 1 else {**values, "expected": right["ps"]}
                yield Divergence(axis=axis, values=shown, consequence=self._consequence(axis, values, right))

    def _seed_says(self, truth: ParallelState) -> Values:
        """The sizes that the launch arguments give; whether attention is cut in slices goes by their switch alone."""
        seed = self.seed
        return {
            "tp_size": seed.tp_size,
            "pp_size": seed.pp_size,
            "dp_size": seed.dp_size,
            "attn_cp_size": seed.attn_cp_size,
            "attn_dcp_size": seed.dcp_size,
            "attn_dp_size": truth.dp_size if seed.enable_dp_attention else 1,
            "moe_ep_size": seed.ep_size,
            "moe_dp_size": seed.moe_dp_size,
        }

    def _consequence(self, axis: str, values: Values, right: Values) -> str:
        """What goes wrong, and where the arguments say a third thing, what that does beside it."""
        if axis == "attn_dcp_rank" and self._is_off_in_live_alone():
            return LIVE_IS_OFF
        first, *others = self._contrasts(axis, values, right)
        told = consequence(first)
        for other in others:
            told += (
                f"; and by the launch arguments ({other.value} against {other.other}) {consequence(other)}"
            )
        return told

    def _is_off_in_live_alone(self) -> bool:
        """The ps is a rank of its own group of several, and live answers 0 because it knows of no group."""
        size = 1 if self.live is None else self.live.attn_dcp_size
        return size == 1 < self.ps.attn_dcp_size and (
            self.ps.attn_dcp_rank == self.ps.tp_rank % self.ps.attn_dcp_size
        )

    def _contrasts(self, axis: str, values: Values, right: Values) -> list[Contrast]:
        """Which two values to speak of: a ps against the groups that are there, else the arguments against them.

        Both where all three differ: one number sizes what another fills, and a third decides what is let in.
        """
        pairs = [("ps", "live"), ("seed", "ps")]
        found = []
        if self.role is Role.DRAFT and axis in DRAFT_FIELDS:
            pairs = [("seed", "live")]
            if values["ps"] != right["ps"]:
                found.append(self._against("draft", axis, values["ps"], right["ps"]))
        found += [
            self._against(source, axis, values[source], values[other])
            for source, other in pairs
            if source in values and other in values and values[source] != values[other]
        ]
        if not found:
            odd = next(source for source in values if values[source] != right[source])
            return [self._against(odd, axis, values[odd], right[odd])]
        all_differ = len(set(values.values())) == _ALL_THREE
        return found if all_differ or found[0].source == "draft" else found[:1]

    def _against(self, source: str, axis: str, value: int | None, other: int | None) -> Contrast:
        off = self.live is None or self.live.attn_dcp_size == 1
        return Contrast(axis=axis, source=source, value=value, other=other, up=self.live is not None, off=off)


_ALL_THREE = 3
# Where a rank stands: its other ranks follow.
_PLACE = ("tp_rank", "pp_rank", "dp_rank")
# What is answered while no group is up; all other reads raise.
_SAFE = {"attn_dcp_rank": 0, "attn_dcp_size": 1}


def _configs_of(state: ParallelState, seed: ParallelConfig) -> Iterator[ParallelConfig]:
    """The configs that a state's sizes speak for, if they can be built: a draft says nothing of the target's dcp."""
    for dcp_size in dict.fromkeys((state.attn_dcp_size, seed.dcp_size)):
        with suppress(TopologyError):
            yield ParallelConfig(
                tp_size=state.tp_size,
                pp_size=state.pp_size,
                dp_size=state.dp_size,
                attn_cp_size=state.attn_cp_size,
                dcp_size=dcp_size,
                ep_size=state.moe_ep_size,
                moe_dp_size=state.moe_dp_size,
                enable_dp_attention=state.attn_dp_size > 1,
            )


def _state_at(
    config: ParallelConfig, place: tuple[int, int, int], gpu_id: int | None
) -> ParallelState | None:
    """The state of the rank at this place; None where the config has no such place."""
    tp_rank, pp_rank, dp_rank = place
    replica = 0 if config.enable_dp_attention else dp_rank
    try:
        return ParallelState.from_config(
            config, tp_rank=tp_rank, pp_rank=pp_rank, dp_rank=replica, gpu_id=gpu_id
        )
    except TopologyError:
        return None
