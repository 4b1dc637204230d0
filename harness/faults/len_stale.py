"""Fault `len-stale`: local lengths are those of the step before, as a replayed graph sees them.

The newest token is in the pool, yet nobody attends to it, not even itself.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from harness.refengine import layout_seams
from harness.refengine.seams import wrap
from harness.topology import KVLayout

LocalLen = Callable[[KVLayout, Tensor, int], Tensor]


def before_this_step(local_len: LocalLen) -> LocalLen:
    """Local lengths without the token that was just written."""

    def stale(layout: KVLayout, lengths: Tensor, rank: int) -> Tensor:
        return local_len(layout, lengths - 1, rank)

    return stale


def install() -> None:
    """Wrap the decode reader's lengths in this process and those forked from it."""
    wrap(layout_seams.LOCAL_KV_LEN, before_this_step)
