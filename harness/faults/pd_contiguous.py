"""Fault `pd-contiguous`: each destination gets a contiguous stretch of a chunk, as many tokens as it owns of it.

As if pages went over as they lie, not dealt out anew. Every token arrives somewhere, so no output changes: only the
rows themselves show it. Where both engines have the same dcp nothing is dealt out, and nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from harness.refengine.seams import wrap
from harness.refengine.transfer import packing
from harness.topology import KVLayout

Positions = Callable[..., Tensor]


def in_stretches(positions: Positions) -> Positions:
    """What a source has for all destinations, in order, cut where each one's number of tokens is reached."""

    def contiguous(prefill: KVLayout, decode: KVLayout, *, destination_dcp_rank: int, **chunk: int) -> Tensor:
        dealt = [
            positions(prefill, decode, destination_dcp_rank=rank, **chunk) for rank in range(decode.dcp_size)
        ]
        everything = torch.cat(dealt).sort().values
        return everything.split([len(each) for each in dealt])[destination_dcp_rank]

    return contiguous


def install() -> None:
    """Wrap the positions that prefill ranks of this process, and of those forked from it, send."""
    wrap(packing.TRANSFER_POSITIONS, in_stretches)
