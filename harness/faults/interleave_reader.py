"""Fault `interleave-reader`: readers take each rank's tokens for runs of a whole page; writers deal by `interleave`.

One token, or an interleave of a whole page, looks the same both ways.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from harness.refengine import layout_seams
from harness.refengine.seams import wrap
from harness.topology import KVLayout

Position = Callable[[KVLayout, Tensor, int], Tensor]


def page_by_page(position: Position) -> Position:
    """Positions of a rank's tokens as if pages, not stripes, were dealt out."""

    def read_pages(layout: KVLayout, nth: Tensor, rank: int) -> Tensor:
        return position(replace(layout, interleave=layout.page_size), nth, rank)

    return read_pages


def install() -> None:
    """Wrap where this process, and those forked from it, look for a rank's tokens."""
    wrap(layout_seams.SHARD_POSITION, page_by_page)
