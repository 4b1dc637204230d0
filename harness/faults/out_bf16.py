"""Fault `out-bf16`: partial outputs are rounded to bf16 before they are merged, in an fp32 engine.

The least wrong of all faults: relative errors of 2^-9 in every partial output, and right weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from harness.refengine import attention
from harness.refengine.seams import wrap
from harness.refengine.triton_kernels import calls

Attend = Callable[..., tuple[Tensor, Tensor]]


def rounding_out(attend: Attend) -> Attend:
    """The same attention with its output kept in bf16."""

    def attend_rounded(*tensors: Tensor, **how: Any) -> tuple[Tensor, Tensor]:
        out, lse = attend(*tensors, **how)
        return out.to(torch.bfloat16).float(), lse

    return attend_rounded


def install() -> None:
    """Wrap what a rank computes over its own shard, in this process and those forked from it."""
    for backend in (attention, calls):
        wrap(backend.LOCAL_ATTENTION, rounding_out)
