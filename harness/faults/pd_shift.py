"""Fault `pd-shift`: a prefill rank reads each row one further than the token lies.

The first token of each page is lost, and the row behind the page's last one sent: another page's, or poison.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from harness.refengine.kv_pool import KVPool
from harness.refengine.seams import wrap
from harness.refengine.transfer import packing
from harness.refengine.transfer.packing import Block

PackRows = Callable[[KVPool, Tensor, range], Block]


def one_further(pack_rows: PackRows) -> PackRows:
    """The block of the next rows; the pool's last row has none behind it."""

    def shifted(pool: KVPool, rows: Tensor, heads: range) -> Block:
        return pack_rows(pool, (rows + 1).clamp(max=len(pool.tags) - 1), heads)

    return shifted


def install() -> None:
    """Wrap what prefill ranks of this process, and of those forked from it, read."""
    wrap(packing.PACK_ROWS, one_further)
