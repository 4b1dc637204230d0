"""Fault `empty-split`: a split without tokens leaves no mark of it, and the merge counts its scratch.

That scratch is zeros: an output of 0 with LSE 0, which weighs like a token with score 0. Wrong wherever a sequence
is shorter than the splits it is cut into.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from harness.refengine.seams import wrap
from harness.refengine.triton_kernels import calls

Splits = Callable[..., None]


def counting_empty_splits(decode: Splits) -> Splits:
    """The same splits, with LSE 0 where there was nothing to attend to."""

    def decode_zeros(*tensors: Tensor, **how: Any) -> None:
        decode(*tensors, **how)
        lses = tensors[-1]
        lses.masked_fill_(lses == -torch.inf, 0.0)

    return decode_zeros


def install() -> None:
    """Wrap the decode kernel, in this process and those forked from it."""
    wrap(calls.DECODE_SPLITS, counting_empty_splits)
