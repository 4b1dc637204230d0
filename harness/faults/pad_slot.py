"""Fault `pad-slot`: tokens of other ranks are parked in the first row that a request may own, not in the dummy page.

Only the request that holds page 1 is hurt: one in many, and a different one each time.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from harness.refengine import step_plan
from harness.refengine.kv_pool import DUMMY_ROW
from harness.refengine.seams import wrap
from harness.topology import KVLayout

WriteRows = Callable[..., Tensor]


def parked_in_page_one(write_rows: WriteRows) -> WriteRows:
    """The same rows, with the first of page 1 for the dummy."""

    def parked(layout: KVLayout, rank: int, *, positions: Tensor, slots: Tensor) -> Tensor:
        rows = write_rows(layout, rank, positions=positions, slots=slots)
        return torch.where(rows == DUMMY_ROW, layout.rows_of_page(1).start, rows)

    return parked


def install() -> None:
    """Wrap the rows that this process, and those forked from it, write to."""
    wrap(step_plan.WRITE_ROWS, parked_in_page_one)
