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
from harness.topology.consequences import Contrast, consequence
from harness.topology.live import LiveParallel
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

    def __str__(self) -> str:
        said = ", ".join(f"{source} {value}" for source, value in self.values.items())
        return f"{self.axis}: {said}: {self.consequence}"


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
    target's. Raises TopologyError for a role that does not exist.
    """
    try:
        role = Role(role)
    except ValueError as error:
        raise TopologyError(f"there is no role {role!r}; there are {', '.join(Role)}") from error
    worker = _Worker(seed, ps, read_live(live) if isinstance(live, LiveParallel) else live, role)
    return min((worker.unexplained_by(truth) for truth in worker.candidates()), key=len)


def compare_states(
    a: ParallelState, b: ParallelState, *, names: tuple[str, str] = ("scheduler", "one_batch")
) -> list[Divergence]:
    """Every field on which two places that build a worker's state from the same arguments differ."""
    first, second = names
    return [
        Divergence(
            axis=axis,
            values={first: getattr(a, axis), second: getattr(b, axis)},
            consequence=f"{second} runs another topology than {first}: what it shows is not true of {first}",
        )
        for axis in FIELDS
        if getattr(a, axis) != getattr(b, axis)
    ]


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
                contrast = self._contrast(axis, values, right)
                yield Divergence(axis=axis, values=shown, consequence=consequence(contrast))

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

    def _contrast(self, axis: str, values: Values, right: Values) -> Contrast:
        """Which two values to speak of: a ps against the groups that are there, else the arguments against them."""
        pairs = [("ps", "live"), ("seed", "ps")]
        if self.role is Role.DRAFT and axis in DRAFT_FIELDS:
            if values["ps"] != right["ps"]:
                return self._against("draft", axis, values["ps"], right["ps"])
            pairs = [("seed", "live")]
        for source, other in pairs:
            if source in values and other in values and values[source] != values[other]:
                return self._against(source, axis, values[source], values[other])
        odd = next(source for source in values if values[source] != right[source])
        return self._against(odd, axis, values[odd], right[odd])

    def _against(self, source: str, axis: str, value: int | None, other: int | None) -> Contrast:
        return Contrast(axis=axis, source=source, value=value, other=other, up=self.live is not None)


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
