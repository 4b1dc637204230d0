"""Fault `lse-bf16`: LSEs are rounded to bf16 on their way to the merge.

An LSE of 8 then has a step of 1/32, so weights are off by up to 2 %: no answer of a confident model changes.
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


def rounding_lse(attend: Attend) -> Attend:
    """The same attention with its LSE kept in bf16."""

    def attend_rounded(*tensors: Tensor, **how: Any) -> tuple[Tensor, Tensor]:
        out, lse = attend(*tensors, **how)
        return out, lse.to(torch.bfloat16).float()

    return attend_rounded


def install() -> None:
    """Wrap what a rank computes over its own shard, in this process and those forked from it."""
    for backend in (attention, calls):
        wrap(backend.LOCAL_ATTENTION, rounding_lse)
