"""Fault `merge-mean`: partial outputs are averaged, each rank's alike, because no LSE reaches the merge.

Ranks that hold what matters count no more than the others, nor do empty ones count less.
"""

from __future__ import annotations

import torch
from torch import Tensor

from harness.faults.weights import patch_weights


def equal_weights(lse: Tensor) -> Tensor:
    """lse [ranks, B, H] -> 1 / ranks each."""
    return torch.full_like(lse, 1 / len(lse))


def install() -> None:
    """Patch the merge of this process and of those forked from it."""
    patch_weights(equal_weights)
