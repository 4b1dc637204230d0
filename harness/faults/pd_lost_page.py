"""Fault `pd-lost-page`: a prefill rank does not read the last page of a prompt; the dummy row is sent in its place.

As if pages were counted by division without the last, partly filled one. Prompts of one page are lost whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from harness.refengine.kv_pool import DUMMY_ROW
from harness.refengine.seams import wrap
from harness.refengine.transfer import packing
from harness.topology import KVLayout

SourceRows = Callable[[KVLayout, Sequence[int], Tensor], Tensor]


def without_the_last_page(source_rows: SourceRows) -> SourceRows:
    """The same rows, with the dummy for all of the last page."""

    def cut(layout: KVLayout, pages: Sequence[int], positions: Tensor) -> Tensor:
        lost = positions // layout.widened_page_size >= len(pages) - 1
        return torch.where(lost, DUMMY_ROW, source_rows(layout, pages, positions))

    return cut


def install() -> None:
    """Wrap the rows that prefill ranks of this process, and of those forked from it, read."""
    wrap(packing.SOURCE_ROWS, without_the_last_page)
