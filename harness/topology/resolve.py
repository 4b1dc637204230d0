"""What the three sources of one worker say, from what a caller gave: checked, and the rest filled in.

`inject()` and `mock_worker()` take sources alike, so they refuse alike: a value of the wrong type, a rank that is
not there, a source that contradicts itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.errors import TopologyError
from harness.topology.config import ParallelConfig
from harness.topology.consistency import require_consistent
from harness.topology.state import ParallelState


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSources:
    """What one worker finds in each source, and which rank of the config it is."""

    rank: int
    seed: ParallelConfig
    ps: ParallelState
    live: ParallelState


def resolve(
    config: ParallelConfig,
    *,
    rank: int,
    seed: ParallelConfig | None = None,
    ps: ParallelState | ParallelConfig | None = None,
    live: ParallelState | ParallelConfig | None = None,
) -> WorkerSources:
    """The sources of rank `rank` of `config`; what is None follows from the config. Raises TopologyError."""
    own = state_of("config", require_config("config", config), rank)
    return WorkerSources(
        rank=rank,
        seed=config if seed is None else require_config("seed", seed),
        ps=own if ps is None else state_of("ps", ps, rank),
        live=own if live is None else state_of("live", live, rank),
    )


def state_of(source: str, given: ParallelState | ParallelConfig, rank: int) -> ParallelState:
    """A state as it is, once it is known not to contradict itself; of a config the state of that rank."""
    if isinstance(given, ParallelState):
        require_consistent(given, source=source)
        return given
    config = require_config(source, given, "a ParallelState or a ParallelConfig")
    if type(rank) is not int or not 0 <= rank < config.world_size:
        raise TopologyError(
            f"rank is {rank!r}, but must be an integer in 0..{config.world_size - 1} (tp * pp of {source})"
        )
    return ParallelState.from_config(config, tp_rank=rank % config.tp_size, pp_rank=rank // config.tp_size)


def require_config(source: str, given: object, allowed: str = "a ParallelConfig") -> ParallelConfig:
    """`given`, or TopologyError where it is something else."""
    if not isinstance(given, ParallelConfig):
        raise TopologyError(f"{source} is {given!r}, but must be {allowed}")
    return given
