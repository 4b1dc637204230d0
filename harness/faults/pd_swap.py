"""Fault `pd-swap`: DCP ranks 1 and 2 of the decode side are sent each other's rows, as far as they are equally many.

Attention does not care who holds a token, so no output changes: only the rows themselves show it. Where both
engines have the same dcp a source holds one destination's tokens alone, and nothing can be exchanged.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from harness.refengine.seams import wrap
from harness.refengine.transfer import packing
from harness.topology import KVLayout

Positions = Callable[..., Tensor]
EXCHANGED = {1: 2, 2: 1}


def exchanged(positions: Positions) -> Positions:
    """The other's first positions in place of as many of one's own; the ragged rest stays."""

    def swapped(prefill: KVLayout, decode: KVLayout, *, destination_dcp_rank: int, **chunk: int) -> Tensor:
        own = positions(prefill, decode, destination_dcp_rank=destination_dcp_rank, **chunk)
        other = EXCHANGED.get(destination_dcp_rank, destination_dcp_rank)
        foreign = positions(prefill, decode, destination_dcp_rank=other, **chunk)
        common = min(len(own), len(foreign))
        return torch.cat([foreign[:common], own[common:]])

    return swapped


def install() -> None:
    """Wrap the positions that prefill ranks of this process, and of those forked from it, send."""
    wrap(packing.TRANSFER_POSITIONS, exchanged)
