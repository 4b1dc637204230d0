"""Fault `lse-stride`: a kernel writes its LSE [H, B], and the merge reads the buffer as [B, H].

With one sequence in the batch both are the same numbers in the same order: only batches show it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from harness.refengine import attention
from harness.refengine.seams import wrap
from harness.refengine.triton_kernels import calls

Attend = Callable[..., tuple[Tensor, Tensor]]


def transposed_lse(attend: Attend) -> Attend:
    """The same attention whose LSE lies transposed in memory, its strides forgotten."""

    def attend_transposed(*tensors: Tensor, **how: Any) -> tuple[Tensor, Tensor]:
        out, lse = attend(*tensors, **how)
        return out, lse.t().reshape(lse.shape)

    return attend_transposed


def install() -> None:
    """Wrap what a rank computes over its own shard, in this process and those forked from it."""
    for backend in (attention, calls):
        wrap(backend.LOCAL_ATTENTION, transposed_lse)
