"""Fault `write-all`: every rank writes every token, since one write path lacks the owner filter.

A row then holds the last of the dcp tokens that lie in its place on their owners.
"""

from __future__ import annotations

from torch import Tensor

from harness.refengine import step_plan
from harness.refengine.layout_seams import physical_row
from harness.refengine.seams import patch
from harness.topology import KVLayout


def rows_without_owner(layout: KVLayout, rank: int, *, positions: Tensor, slots: Tensor) -> Tensor:
    """The row of each token's owner, on every rank."""
    return physical_row(layout, slots)


def install() -> None:
    """Patch the rows that this process, and those forked from it, write to."""
    patch(step_plan.WRITE_ROWS, rows_without_owner)
