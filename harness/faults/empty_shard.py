"""Fault `empty-shard`: a rank without a token of the sequence reports LSE 0 where -inf is meant.

Its output of zeros then counts like a token with score 0. From length dcp on every rank holds a token, and
nothing is wrong.
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


def zero_when_empty(attend: Attend) -> Attend:
    """The same attention with LSE 0 where there was nothing to attend to."""

    def attend_zero(*tensors: Tensor, **how: Any) -> tuple[Tensor, Tensor]:
        out, lse = attend(*tensors, **how)
        return out, lse.masked_fill(lse == -torch.inf, 0.0)

    return attend_zero


def install() -> None:
    """Wrap what a rank computes over its own shard, in this process and those forked from it."""
    for backend in (attention, calls):
        wrap(backend.LOCAL_ATTENTION, zero_when_empty)
