"""Fault `out-bf16`: partial outputs are rounded to bf16 before they are merged, in an fp32 engine.

The least wrong of all faults: relative errors of 2^-9 in every partial output, and right weights.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from harness.refengine import attention
from harness.refengine.seams import wrap

Attend = Callable[..., tuple[Tensor, Tensor]]


def rounding_out(attend: Attend) -> Attend:
    """The same attention with its output kept in bf16."""

    def attend_rounded(*tensors: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        out, lse = attend(*tensors, scale=scale)
        return out.to(torch.bfloat16).float(), lse

    return attend_rounded


def install() -> None:
    """Wrap what a rank computes over its own shard, in this process and those forked from it."""
    wrap(attention.LOCAL_ATTENTION, rounding_out)
