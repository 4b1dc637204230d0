"""Fault `rope-local`: decode turns the new query and key by the token's place in its shard, p // dcp.

Prefill turns by global positions, so that decoding sees its prompt from far too early a place.
"""

from __future__ import annotations

from torch import Tensor

from harness.refengine import layout_seams
from harness.refengine.batch import ForwardMode
from harness.refengine.seams import patch
from harness.topology import KVLayout


def place_in_shard(layout: KVLayout, positions: Tensor, mode: ForwardMode) -> Tensor:
    """In decode the row that a position would have in a pool of its own, else the position."""
    return layout.row(positions) if mode is ForwardMode.DECODE else positions


def install() -> None:
    """Patch the positions that rotary embedding turns by in this process and those forked from it."""
    patch(layout_seams.ROTARY_POSITIONS, place_in_shard)
