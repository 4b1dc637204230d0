"""An independent model without ranks, pages or batches: one sequence, loops over positions and heads, fp64.

It shares with the engine only the numbers of the weights. Rotary positions are turned with sines and cosines
pair by pair, softmax is written out, every token attends to a plain list of all earlier ones.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from harness.refengine.model import ModelConfig
from harness.refengine.weights import random_weights


class DenseOracle:
    """The model `model` with the weights of `seed`."""

    def __init__(self, model: ModelConfig, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> None:
        self.model = model
        self.weights = random_weights(model, seed=seed, dtype=dtype)

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

    def _norm(self, x: Tensor) -> Tensor:
        return x / torch.sqrt((x * x).sum(dim=1, keepdim=True) / x.shape[1] + self.model.norm_eps)

    def _attend(self, qkv: Tensor) -> Tensor:
        model, length = self.model, len(qkv)
        size, group = model.head_dim, model.num_q_heads // model.num_kv_heads
        out = torch.zeros(length, model.num_q_heads * size, dtype=torch.float64)
        values_at = (model.num_q_heads + model.num_kv_heads) * size
        for head in range(model.num_q_heads):
            k_at = (model.num_q_heads + head // group) * size
            v_at = values_at + head // group * size
            q = self._turned(qkv[:, head * size : (head + 1) * size])
            k = self._turned(qkv[:, k_at : k_at + size])
            for position in range(length):
                scores = k[: position + 1] @ q[position] * model.qk_scale / math.sqrt(size)
                shares = torch.exp(scores - scores.max())
                seen = qkv[: position + 1, v_at : v_at + size]
                out[position, head * size : (head + 1) * size] = (shares / shares.sum()) @ seen
        return out

    def _turned(self, vectors: Tensor) -> Tensor:
        """Rotate elements (2i, 2i+1) of the vector at position p by p · theta^(-2i/size)."""
        out = torch.empty_like(vectors)
        positions = torch.arange(len(vectors), dtype=torch.float64)
        for i in range(vectors.shape[1] // 2):
            angles = positions * self.model.rope_theta ** (-2 * i / vectors.shape[1])
            sin, cos = torch.sin(angles), torch.cos(angles)
            even, odd = vectors[:, 2 * i], vectors[:, 2 * i + 1]
            out[:, 2 * i] = even * cos - odd * sin
            out[:, 2 * i + 1] = even * sin + odd * cos
        return out
