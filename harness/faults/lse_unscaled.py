"""Fault `lse-unscaled`: the LSE is taken of raw scores, the output of scaled ones.

Each partial output is right; the weights are those of a sharper (or flatter) softmax than the model's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from harness.refengine import attention
from harness.refengine.seams import wrap
from harness.refengine.triton_kernels import calls

Attend = Callable[..., tuple[Tensor, Tensor]]


def unscaled_lse(attend: Attend) -> Attend:
    """The same outputs, with the LSE that a scale of 1 gives."""

    def attend_unscaled(*tensors: Tensor, **how: Any) -> tuple[Tensor, Tensor]:
        out, _ = attend(*tensors, **how)
        _, lse = attend(*tensors, **{**how, "scale": 1.0})
        return out, lse

    return attend_unscaled


def install() -> None:
    """Wrap what a rank computes over its own shard, in this process and those forked from it."""
    for backend in (attention, calls):
        wrap(backend.LOCAL_ATTENTION, unscaled_lse)
