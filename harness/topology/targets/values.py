"""Harness's values under the names that both generations of the package share."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from harness.topology.config import ParallelConfig
from harness.topology.state import ParallelState

# Groups whose size and rank harness and package call alike.
_SHARED_KINDS = ("tp", "pp", "attn_tp", "attn_cp", "attn_dp", "moe_ep", "moe_dp")


def config_values(config: ParallelConfig) -> dict[str, Any]:
    """The package's launch arguments have the same names."""
    return asdict(config)


def group_values(live: ParallelState) -> dict[str, Any]:
    """Size and rank in every kind of group but DCP, with the MoE TP group that follows from them."""
    parts = (f"{kind}_{part}" for kind in _SHARED_KINDS for part in ("size", "rank"))
    moe_tp_size = max(1, live.tp_size // (live.moe_ep_size * live.moe_dp_size))
    return {part: getattr(live, part) for part in parts} | {
        "moe_tp_size": moe_tp_size,
        "moe_tp_rank": live.tp_rank % moe_tp_size,
    }


def dcp_values(live: ParallelState, dcp_group: object) -> dict[str, Any]:
    """All DCP names, stated together; where DCP is off, only those that answer without a group."""
    on = live.attn_dcp_size > 1
    values: dict[str, Any] = {
        "dcp_enabled": on,
        "attn_dcp_size": live.attn_dcp_size,
        "attn_dcp_rank": live.attn_dcp_rank,
    }
    if on:
        values |= {"dcp_size": live.attn_dcp_size, "dcp_rank": live.attn_dcp_rank, "dcp_group": dcp_group}
    return values
