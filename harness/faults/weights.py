"""How faults of the merge's weights are planted in both attention backends."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from harness.refengine import attention
from harness.refengine.seams import patch
from harness.refengine.triton_kernels import backend


def patch_weights(weights: Callable[[Tensor], Tensor]) -> None:
    """Have every merge of ranks weight by `weights`: lse [ranks, B, H] -> share of each rank, the same shape.

    A kernel computes its weights itself, so with Triton the ranks are merged by torch instead.
    """
    patch(attention.LSE_WEIGHTS, weights)
    patch(backend.MERGE_RANKS, attention.merge_parts)
