"""One rank's topology on both sides of group construction: what it is built from, and what is live afterwards.

`run_rank` makes the per-worker state first, then groups, then installs what the groups say as live. The two are
made apart, so that a rank can tell both in `/server_info`, and whether they agree is seen and not assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from harness.refengine.comm import Comms
from harness.refengine.config import Device, EngineConfig
from harness.refengine.seams import seam
from harness.topology import EarlyRead, ParallelState, Role, get_parallel
from harness.topology.sources import read_live

# Name of the seam, for those who patch it.
WORKER_STATE = "worker-state"


@seam(WORKER_STATE)
def worker_state(config: EngineConfig, rank: int) -> ParallelState:
    """The state (ps) that TP rank `rank` carries: arithmetic of launch arguments and place, no group is asked."""
    gpu_id = rank if config.device is Device.CUDA else None
    return ParallelState.from_config(config.parallel(), tp_rank=rank, gpu_id=gpu_id)


def live_state(config: EngineConfig, comms: Comms) -> ParallelState:
    """The same rank as its groups are: its places and their sizes are those of the communicators."""
    by_arguments = ParallelState.from_config(config.parallel(), tp_rank=comms.tp.rank)
    return replace(
        by_arguments,
        tp_size=comms.tp.size,
        attn_dcp_rank=comms.dcp.rank,
        attn_dcp_size=comms.dcp.size,
        gpu_id=comms.tp.rank if config.device is Device.CUDA else None,
    )


def told_sources(config: EngineConfig, ps: ParallelState, early: Sequence[EarlyRead]) -> dict[str, Any]:
    """The sources of this rank as JSON: seed, ps, live now, and what was read of live before it could be right."""
    live = read_live(get_parallel())
    return {
        "role": Role.TARGET.value,
        "seed": asdict(config.parallel()),
        "ps": asdict(ps),
        "live": None if live is None else asdict(live),
        "early_reads": [str(read) for read in early],
    }
