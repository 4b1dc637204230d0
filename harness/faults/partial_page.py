"""Fault `partial-page`: of each shard only full pages are read, the last, partly filled one is not.

With one row a page there are no partial pages, and at whole pages nothing is wrong.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from harness.refengine import layout_seams
from harness.refengine.seams import wrap
from harness.topology import KVLayout

LocalLen = Callable[[KVLayout, Tensor, int], Tensor]


def whole_pages(local_len: LocalLen) -> LocalLen:
    """Local lengths rounded down to the page."""

    def floored(layout: KVLayout, lengths: Tensor, rank: int) -> Tensor:
        return local_len(layout, lengths, rank) // layout.page_size * layout.page_size

    return floored


def install() -> None:
    """Wrap the decode reader's lengths in this process and those forked from it."""
    wrap(layout_seams.LOCAL_KV_LEN, whole_pages)
