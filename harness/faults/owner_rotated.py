"""Fault `owner-rotated`: writers and readers agree that the first turn is rank 1's, not rank 0's.

Attention does not care who holds a token, so no output changes: only the rows themselves show it. A peer that
fetches a shard by its number gets its neighbour's.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from harness.refengine import layout_seams
from harness.refengine.seams import patch, wrap
from harness.topology import KVLayout

LocalLen = Callable[[KVLayout, Tensor, int], Tensor]


def first_turn_to_rank_one(layout: KVLayout, positions: Tensor) -> Tensor:
    """`(p // interleave + 1) % dcp` in place of `(p // interleave) % dcp`."""
    return (layout.owner(positions) + 1) % layout.dcp_size


def of_the_rank_before(asked: LocalLen) -> LocalLen:
    """A question about a rank's shard, answered with the shard before."""

    def rotated(layout: KVLayout, counts: Tensor, rank: int) -> Tensor:
        return asked(layout, counts, (rank - 1) % layout.dcp_size)

    return rotated


def install() -> None:
    """Patch who writes, and wrap what readers expect, in this process and those forked from it."""
    patch(layout_seams.TOKEN_OWNER, first_turn_to_rank_one)
    wrap(layout_seams.LOCAL_KV_LEN, of_the_rank_before)
    wrap(layout_seams.SHARD_POSITION, of_the_rank_before)
