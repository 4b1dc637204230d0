"""Fault `kv-head-mod`: gathered query head h attends to KV head h % K, where neighbours share one (h // group).

With one KV head on the rank there is nothing to confuse.
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


def cycling_kv_heads(attend: Attend) -> Attend:
    """The same attention with KV heads dealt to query heads in turns."""

    def attend_cycling(q: Tensor, kv: Tensor, *others: Tensor, **how: Any) -> tuple[Tensor, Tensor]:
        # Keys [B, K, L, D] of the torch backend, a pool [rows, 2, K, D] of the Triton one.
        kv_heads = kv.shape[2] if "page_size" in how else kv.shape[1]
        heads = torch.arange(q.shape[1], device=q.device)
        # Attention serves runs of heads: bring those that share a KV head by the wrong rule together, and back.
        runs = heads.view(-1, kv_heads).t().flatten()
        out, lse = attend(q[:, runs], kv, *others, **how)
        back = runs.argsort()
        return out[:, back], lse[:, back]

    return attend_cycling


def install() -> None:
    """Wrap what a rank computes over its own shard, in this process and those forked from it."""
    for backend in (attention, calls):
        wrap(backend.LOCAL_ATTENTION, cycling_kv_heads)
