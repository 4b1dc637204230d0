"""Fault `merge-max`: the shard with the largest LSE is taken for the whole; the others are dropped.

Nearly right where one token holds most of the softmax, as in confident models, and more wrong the longer the text.
"""

from __future__ import annotations

import torch
from torch import Tensor

from harness.faults.weights import patch_weights


def largest_only(lse: Tensor) -> Tensor:
    """lse [ranks, B, H] -> 1 for the rank with the largest, 0 for all others."""
    return torch.zeros_like(lse).scatter_(0, lse.argmax(dim=0, keepdim=True), 1.0)


def install() -> None:
    """Patch the merge of this process and of those forked from it."""
    patch_weights(largest_only)
