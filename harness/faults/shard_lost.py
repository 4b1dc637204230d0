"""Fault `shard-lost`: one rank of each group takes its shard for empty, as after an eviction on it alone.

The merge makes up for it without a sound: the other shards' weights still add up to 1.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from harness.refengine import layout_seams
from harness.refengine.seams import wrap
from harness.topology import KVLayout

LocalLen = Callable[[KVLayout, Tensor, int], Tensor]

# Any but rank 0, which holds the first token of every sequence, and all of it at dcp 1.
LOST_RANK = 1


def without_a_rank(local_len: LocalLen) -> LocalLen:
    """Local lengths, all 0 on one rank."""

    def lost(layout: KVLayout, lengths: Tensor, rank: int) -> Tensor:
        return local_len(layout, lengths, rank) * (rank != LOST_RANK)

    return lost


def install() -> None:
    """Wrap the decode reader's lengths in this process and those forked from it."""
    wrap(layout_seams.LOCAL_KV_LEN, without_a_rank)
