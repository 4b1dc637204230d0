"""The decoder's layers for one rank: norm, rotary positions, attention over the pool, SwiGLU.

Tensor parallelism: query/key/value and gate/up are cut by output, o_proj and down_proj by input, each
followed by one all-reduce; activations [T, hidden] are whole on every rank and, since every backend sums in
rank order, bit-identical. Matrix products run in the weights' dtype, the residual stream stays fp32.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import linear, rms_norm, silu

from harness.refengine.attention import gather_heads
from harness.refengine.comm import Comms, Communicator
from harness.refengine.kv_pool import KVPool
from harness.refengine.model import ModelConfig
from harness.refengine.step_plan import DecodeReads, ExtendReads, PackedReads, PagedReads, StepPlan
from harness.refengine.weights import LayerWeights


class Merge(Protocol):
    """`merge_ag_rs` or `merge_a2a`."""

    def __call__(self, out: Tensor, lse: Tensor, group: Communicator) -> Tensor: ...


class Attention(Protocol):
    """`TorchAttention` or `TritonAttention`: what a rank computes by itself, over the reads planned for it."""

    def decode(self, q: Tensor, kv: Tensor, reads: Any) -> tuple[Tensor, Tensor]: ...

    def extend(self, q: Tensor, new: Tensor, gathered: Tensor | None, reads: Any) -> Tensor: ...


class Rotary:
    """Rotary positions (RoFormer): elements (2i, 2i+1) of a head turn by position · theta^(-2i/head_dim)."""

    def __init__(self, model: ModelConfig, device: torch.device | str) -> None:
        exponents = torch.arange(0, model.head_dim, 2, dtype=torch.float64) / model.head_dim
        frequencies = model.rope_theta**-exponents
        angles = torch.arange(model.max_positions, dtype=torch.float64)[:, None] * frequencies
        turns = torch.polar(torch.ones_like(angles), angles)
        self._turns = turns.to(torch.complex64).to(device)

    def turns(self, positions: Tensor) -> Tensor:
        """Complex [T, 1, head_dim / 2], once per step; IndexError past max_positions."""
        return self._turns.index_select(0, positions)[:, None]

    @staticmethod
    def apply(heads: Tensor, turns: Tensor) -> Tensor:
        """Turn fp32 [T, heads, head_dim]."""
        pairs = torch.view_as_complex(heads.unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * turns).flatten(-2)


class DecoderLayer:
    """One layer of one rank.

    Decode attends with the DCP group's query heads, gathered, which divide evenly over the KV heads it holds.
    """

    def __init__(
        self,
        *,
        index: int,
        model: ModelConfig,
        weights: LayerWeights,
        pool: KVPool,
        comms: Comms,
        merge: Merge,
        attention: Attention,
    ) -> None:
        self._index = index
        self._model = model
        self._weights = weights
        self._pool = pool
        self._tp = comms.tp
        self._dcp = comms.dcp
        self._merge = merge
        self._attend = attention

    def __call__(self, x: Tensor, plan: StepPlan, turns: Tensor) -> Tensor:
        """Residual stream fp32 [T, hidden] -> the same after this layer; writes the new tokens' KV."""
        x = x + self._attention(self._norm(x), plan, turns)
        return x + self._ffn(self._norm(x))

    def _norm(self, x: Tensor) -> Tensor:
        normed = rms_norm(x, (self._model.hidden,), eps=self._model.norm_eps)
        return normed.to(self._weights.qkv.dtype)

    def _attention(self, h: Tensor, plan: StepPlan, turns: Tensor) -> Tensor:
        heads = linear(h, self._weights.qkv).float().unflatten(-1, (-1, self._model.head_dim))
        kv_heads = self._pool.kv.shape[3]
        q_heads = heads.shape[1] - 2 * kv_heads
        turned = Rotary.apply(heads[:, : q_heads + kv_heads], turns)
        q = turned[:, :q_heads]
        kv = torch.stack([turned[:, q_heads:], heads[:, q_heads + kv_heads :]], dim=1).to(self._pool.kv.dtype)
        self._pool.write(self._index, plan.write_rows, kv)
        if isinstance(plan.reads, DecodeReads | PagedReads):
            out = self._decode(q, plan.reads)
        else:
            out = self._extend(q, kv, plan.reads)
        return self._tp.all_reduce(linear(out.flatten(1).to(h.dtype), self._weights.o_proj))

    def _decode(self, q: Tensor, reads: DecodeReads | PagedReads) -> Tensor:
        """q [B, own heads, D] -> [B, own heads, D]: gather heads, attend over the local shard, merge."""
        sharded = self._dcp.size > 1
        if sharded:
            q = gather_heads(q, self._dcp)
        out, lse = self._attend.decode(q, self._pool.kv[self._index], reads)
        return self._merge(out, lse, self._dcp) if sharded else out

    def _extend(self, q: Tensor, kv: Tensor, reads: ExtendReads | PackedReads) -> Tensor:
        """q [T, own heads, D], new kv [T, 2, kv_heads, D] -> [T, own heads, D]; the group sends prefixes."""
        gathered = None
        if len(reads.order):
            gathered = self._pool.read(self._index, reads.send_rows)
            if self._dcp.size > 1:
                gathered = self._dcp.all_gather(gathered)
        return self._attend.extend(q, kv, gathered, reads)

    def _ffn(self, h: Tensor) -> Tensor:
        gate, up = linear(h, self._weights.gate_up).chunk(2, dim=-1)
        return self._tp.all_reduce(linear(silu(gate) * up, self._weights.down_proj))
