"""Fault `len-ceil`: every rank takes the largest local length, ceil(L / dcp), for its own.

Ranks that hold fewer tokens read one row past their shard. Where dcp divides L nothing is wrong, and where
the row there holds zeros nearly nothing: free rows must be poisoned to see it.
"""

from __future__ import annotations

from torch import Tensor

from harness.refengine import layout_seams
from harness.refengine.seams import patch
from harness.topology import KVLayout


def ceil_local_len(layout: KVLayout, lengths: Tensor, rank: int) -> Tensor:
    """What the rank with the longest shard holds, whoever asks."""
    return -(-lengths // layout.dcp_size)


def install() -> None:
    """Patch the decode reader's lengths in this process and those forked from it."""
    patch(layout_seams.LOCAL_KV_LEN, ceil_local_len)
