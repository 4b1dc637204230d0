"""Fault `merge-skipped`: a branch that tests the wrong flag leaves the merge out.

Each rank goes on with what its own shard gave for its own heads. The merge's collectives are missing, too.
"""

from __future__ import annotations

from torch import Tensor

from harness.refengine import attention
from harness.refengine.comm import Communicator
from harness.refengine.seams import patch


def own_shard_only(out: Tensor, lse: Tensor, group: Communicator, **_: object) -> Tensor:
    """out [B, H_group, D] -> this rank's heads of it, as they are, whatever was to merge them."""
    return out.unflatten(1, (group.size, -1))[:, group.rank]


def install() -> None:
    """Patch both merges of this process and of those forked from it."""
    for merge in (attention.MERGE_AG_RS, attention.MERGE_A2A):
        patch(merge, own_shard_only)
