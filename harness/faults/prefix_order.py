"""Fault `prefix-order`: the gathered prefix of a later prefill chunk is taken as it came, rank by rank.

Attention does not mind the order. But ranks send equally many rows, so a prefix that does not divide by dcp
comes with padding, which then counts as tokens: aligned chunks hide the fault.
"""

from __future__ import annotations

from torch import Tensor

from harness.refengine import step_plan
from harness.refengine.seams import patch
from harness.topology import KVLayout


def as_gathered(layout: KVLayout, *, sent: Tensor, sequences: Tensor, positions: Tensor) -> Tensor:
    """The n-th token of a prefix is the n-th of its rows, one rank's after the other's."""
    each = sent[sequences]
    return positions // each * sent.sum() + (sent.cumsum(0) - sent)[sequences] + positions % each


def install() -> None:
    """Patch where prefill looks for a prefix in this process and those forked from it."""
    patch(step_plan.PREFIX_ORDER, as_gathered)
