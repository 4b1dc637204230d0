"""Fault `head-order`: the group's query heads are gathered in the reverse of rank order.

Every rank attends with right heads under wrong numbers, and the merge sends each result to another rank's o_proj.
"""

from __future__ import annotations

from torch import Tensor

from harness.refengine import attention
from harness.refengine.comm import Communicator
from harness.refengine.seams import patch


def last_rank_first(q: Tensor, group: Communicator) -> Tensor:
    """q [B, own heads, D] of each rank -> [B, own heads * size, D], the last rank's first."""
    return group.all_gather(q, dim=1).unflatten(1, (group.size, -1)).flip(1).flatten(1, 2)


def install() -> None:
    """Patch the gathering of query heads in this process and those forked from it."""
    patch(attention.GATHER_HEADS, last_rank_first)
