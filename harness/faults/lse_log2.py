"""Fault `lse-log2`: a kernel that returns base-2 LSEs is merged as if they were natural ones.

The opposite of `lse-base`: differences between shards count 1 / ln 2 times what they should. Where one shard
holds nearly all of the softmax anyway, nothing changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from harness.refengine import attention
from harness.refengine.seams import wrap
from harness.refengine.triton_kernels import calls

Attend = Callable[..., tuple[Tensor, Tensor]]


def returning_log2(attend: Attend) -> Attend:
    """The same attention whose LSE is a logarithm to base 2; the merge does not know."""

    def attend_log2(*tensors: Tensor, **how: Any) -> tuple[Tensor, Tensor]:
        out, lse = attend(*tensors, **how)
        return out, lse / math.log(2)

    return attend_log2


def install() -> None:
    """Wrap what a rank computes over its own shard, in this process and those forked from it."""
    for backend in (attention, calls):
        wrap(backend.LOCAL_ATTENTION, returning_log2)
