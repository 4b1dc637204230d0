"""An independent model without ranks, pages or batches: one sequence, a loop over positions, fp64.

It shares with the engine only the numbers of the weights. Rotary positions are turned with sines and cosines
pair by pair, softmax is written out, every token attends to a plain list of all earlier ones.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from harness.refengine.model import ModelConfig
from harness.refengine.weights import ModelWeights, random_weights


class DenseOracle:
    """The model `model` with the weights of `seed`, or those given."""

    def __init__(
        self,
        model: ModelConfig,
        *,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        weights: ModelWeights | None = None,
    ) -> None:
        self.model = model
        self.weights = weights or random_weights(model, seed=seed, dtype=dtype)

    def logprobs(self, tokens: list[int]) -> Tensor:
        """[len(tokens), vocab] fp64: row p is the log-distribution of the token after position p."""
        x = self.weights.embedding[tokens].double()
        for layer in self.weights.layers:
            qkv = self._norm(x) @ layer.qkv.double().T
            x = x + self._attend(qkv) @ layer.o_proj.double().T
            up = self._norm(x) @ layer.gate_up.double().T
            gate, up = up[:, : self.model.ffn], up[:, self.model.ffn :]
            x = x + (gate / (1 + torch.exp(-gate)) * up) @ layer.down_proj.double().T
        logits = self._norm(x) @ self.weights.lm_head.double().T
        return logits - torch.logsumexp(logits, dim=1, keepdim=True)

    def greedy(self, tokens: list[int], count: int) -> list[int]:
        """The `count` tokens that follow, the likeliest each time, end marks included."""
        answer: list[int] = []
        for _ in range(count):
            answer.append(int(self.logprobs([*tokens, *answer])[-1].argmax()))
        return answer

    def _norm(self, x: Tensor) -> Tensor:
        return x / torch.sqrt((x * x).sum(dim=1, keepdim=True) / x.shape[1] + self.model.norm_eps)

    def _attend(self, qkv: Tensor) -> Tensor:
        model, length = self.model, len(qkv)
        heads = qkv.view(length, -1, model.head_dim)
        # Query head h shares its KV head with the heads of the same h // group: written out as a list.
        group = model.num_q_heads // model.num_kv_heads
        shared = [head // group for head in range(model.num_q_heads)]
        q = self._turned(heads[:, : model.num_q_heads])
        k = self._turned(heads[:, model.num_q_heads : -model.num_kv_heads])[:, shared]
        v = heads[:, -model.num_kv_heads :][:, shared]
        out = torch.zeros(length, model.num_q_heads, model.head_dim, dtype=torch.float64)
        for position in range(length):
            seen = slice(0, position + 1)
            scores = (k[seen] * q[position]).sum(dim=2) * model.qk_scale / math.sqrt(model.head_dim)
            shares = torch.exp(scores - scores.max(dim=0).values)
            out[position] = ((shares / shares.sum(dim=0))[:, :, None] * v[seen]).sum(dim=0)
        return out.view(length, -1)

    def _turned(self, heads: Tensor) -> Tensor:
        """Rotate elements (2i, 2i+1) of every head at position p by p · theta^(-2i/size)."""
        out = torch.empty_like(heads)
        positions = torch.arange(len(heads), dtype=torch.float64)[:, None]
        for i in range(self.model.head_dim // 2):
            angles = positions * self.model.rope_theta ** (-2 * i / self.model.head_dim)
            sin, cos = torch.sin(angles), torch.cos(angles)
            even, odd = heads[:, :, 2 * i], heads[:, :, 2 * i + 1]
            out[:, :, 2 * i] = even * cos - odd * sin
            out[:, :, 2 * i + 1] = even * sin + odd * cos
        return out
