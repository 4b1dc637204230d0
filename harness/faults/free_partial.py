"""Fault `free-partial`: a freed page gives back a rank's share of a page that is not widened.

The other rows keep their tokens, poison does not return to them, and rows leak from the books. Whoever gets
the page next overwrites what it reads, so no output changes.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.refengine import layout_seams
from harness.refengine.seams import wrap
from harness.topology import KVLayout

PageRows = Callable[[KVLayout, int], range]


def a_share_of(page_rows: PageRows) -> PageRows:
    """The first `page_size / dcp` rows of a page in place of all."""

    def share(layout: KVLayout, page: int) -> range:
        return page_rows(layout, page)[: max(1, layout.page_size // layout.dcp_size)]

    return share


def install() -> None:
    """Wrap what freeing a page forgets in this process and those forked from it."""
    wrap(layout_seams.PAGE_ROWS, a_share_of)
