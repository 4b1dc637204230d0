"""Fault `owner-page`: the engine deals out whole pages, whatever `--interleave` says, and does so everywhere.

A right layout, only not the one that was asked for and is reported. No output changes; a peer that relies on
the report fetches other tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from harness.refengine import layout_seams
from harness.refengine.config import EngineConfig
from harness.refengine.seams import wrap
from harness.topology import KVLayout

LayoutOf = Callable[[EngineConfig], KVLayout]


def interleaved_by_page(layout_of: LayoutOf) -> LayoutOf:
    """The same layout with an interleave of one page."""

    def paged(config: EngineConfig) -> KVLayout:
        layout = layout_of(config)
        return replace(layout, interleave=layout.page_size)

    return paged


def install() -> None:
    """Wrap the layout that engines of this process, and of those forked from it, are built with."""
    wrap(layout_seams.POOL_LAYOUT, interleaved_by_page)
