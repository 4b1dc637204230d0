"""Adapter for SGLang that publishes configuration and ranks to the process (0.5.21 and later).

Seed: what is published, config and ranks. Live: a scoped override over it. There is no ps.
"""

from __future__ import annotations

import importlib
from typing import Any

from harness.topology.config import ParallelConfig
from harness.topology.state import ParallelState
from harness.topology.targets.frames import CONTEXT_MODULE
from harness.topology.targets.values import config_values, dcp_values, group_values


def publish(seed: ParallelConfig, *, rank: int) -> Any:
    """Publish `seed` as a scheduler process does. Ranks are published where the seed has this rank; a seed
    that is given apart may be smaller."""
    module = importlib.import_module(CONTEXT_MODULE)
    # What an outer block or this process itself holds permanently would be checked against the new sizes.
    module.get_parallel().clear_stamp()
    # A record of this name is not resolved any further: no model is looked for.
    server_args = importlib.import_module("sglang.srt.server_args").ServerArgs(
        model_path="dummy", **_config_values(seed)
    )
    ranks = module.SpawnRanks(world_rank=rank) if rank < seed.world_size else None
    module.publish(server_args, role="scheduler", ranks=ranks)
    return server_args


def live_values(live: ParallelState, dcp_group: object) -> dict[str, Any]:
    """What `get_parallel()` shall answer. Nothing is derived from an override here, so each name is stated;
    where DCP is off, `dcp_rank` and `dcp_group` stay unstated and raise."""
    replicas = 1 if live.attn_dp_size > 1 else live.dp_size
    return group_values(live) | {
        "ep_size": live.moe_ep_size,
        "dp_size": replicas,
        "dp_rank": live.dp_rank if live.dp_size > 1 else None,
        "attn_dp_enabled": live.attn_dp_size > 1,
        "num_dp_ranks": replicas * live.attn_dp_size,
        "launch_world_size": live.tp_size * live.pp_size,
        "max_world_size": live.tp_size * live.pp_size,
        "launch_world_rank": live.pp_rank * live.tp_size + live.tp_rank,
        "dcp_size": live.attn_dcp_size,
        **dcp_values(live, dcp_group),
    }


def package_state(ps: ParallelState) -> None:
    """None: these releases have no per-worker state, their workers read `get_parallel()`."""


def _config_values(seed: ParallelConfig) -> dict[str, Any]:
    """Attention slices have a size of their own here; the switch of older releases is resolved into it."""
    replicas = 1 if seed.enable_dp_attention else seed.dp_size
    return config_values(seed) | {
        "dp_size": replicas,
        "attn_dp_size": seed.attn_dp_size,
        "enable_dp_attention": False,
    }
