"""Fault `kv-head-tp`: KV heads are cut over the TP ranks as without DCP, not over the DCP groups.

Ranks of one group then merge shards of different KV heads. Where the model has no more KV heads than there
are groups, every rank of a group gets the same one anyway.
"""

from __future__ import annotations

from harness.refengine import layout_seams
from harness.refengine.seams import patch
from harness.topology import kv_head_range


def cut_over_tp(*, num_kv_heads: int, tp_size: int, dcp_size: int, tp_rank: int) -> range:
    """The KV heads of this rank at dcp 1."""
    return kv_head_range(num_kv_heads=num_kv_heads, tp_size=tp_size, dcp_size=1, tp_rank=tp_rank)


def install() -> None:
    """Patch the KV heads that ranks of this process, and of those forked from it, compute and store."""
    patch(layout_seams.STORED_KV_HEADS, cut_over_tp)
