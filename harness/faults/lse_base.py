"""Fault `lse-base`: the merge takes natural-log LSEs for base-2 ones.

The weights still add up to 1, so outputs look sane; accuracy on a trained model stays where it was. Empty
shards and shards with equal LSE are weighted rightly.
"""

from __future__ import annotations

import torch
from torch import Tensor

from harness.faults.weights import patch_weights


def base_two_weights(lse: Tensor) -> Tensor:
    """lse [ranks, B, H] -> 2^lse_r / sum of 2^lse, where e^lse_r / sum of e^lse is meant."""
    powers = torch.exp2(lse - lse.amax(dim=0))
    return powers / powers.sum(dim=0)


def install() -> None:
    """Patch the merge of this process and of those forked from it."""
    patch_weights(base_two_weights)
