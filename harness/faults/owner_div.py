"""Fault `owner-div`: ownership by blocks, `p // dcp`, where tokens are dealt out in turns.

Writers and readers agree on it, rows and lengths do not: the first dcp tokens are all rank 0's and overwrite
each other in one row, and from position dcp² on nobody is the owner and the token is lost.
"""

from __future__ import annotations

from torch import Tensor

from harness.refengine import layout_seams
from harness.refengine.seams import patch
from harness.topology import KVLayout


def divided_owner(layout: KVLayout, positions: Tensor) -> Tensor:
    """`p // dcp` in place of `(p // interleave) % dcp`; may lie outside the group."""
    return positions // layout.dcp_size


def install() -> None:
    """Patch who writes and sends a token in this process and those forked from it."""
    patch(layout_seams.TOKEN_OWNER, divided_owner)
