"""Fault `kv-head-mod`: gathered query head h attends to KV head h % K, where neighbours share one (h // group).

With one KV head on the rank there is nothing to confuse.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from harness.refengine import attention
from harness.refengine.seams import wrap

Attend = Callable[..., tuple[Tensor, Tensor]]


def cycling_kv_heads(attend: Attend) -> Attend:
    """The same attention with KV heads dealt to query heads in turns."""

    def attend_cycling(
        q: Tensor, k: Tensor, v: Tensor, padding: Tensor, *, scale: float
    ) -> tuple[Tensor, Tensor]:
        heads = torch.arange(q.shape[1], device=q.device)
        # Attention serves runs of heads: bring those that share a KV head by the wrong rule together, and back.
        runs = heads.view(-1, k.shape[1]).t().flatten()
        out, lse = attend(q[:, runs], k, v, padding, scale=scale)
        back = runs.argsort()
        return out[:, back], lse[:, back]

    return attend_cycling


def install() -> None:
    """Wrap what a rank computes over its own shard, in this process and those forked from it."""
    wrap(attention.LOCAL_ATTENTION, cycling_kv_heads)
