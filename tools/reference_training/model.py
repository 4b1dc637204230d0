"""The engine's model as something to train: the same mathematics, whole rows at once, with gradients.

`Decoder` keeps each matrix apart that the engine stacks, because Muon treats every one on its own; `tensors`
stacks them as the engine's checkpoints have them. Used by training, and by its evaluation with a `Cache`.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

from harness.refengine.model import ModelConfig

# The residual stream starts small, so that the first layers' outputs count at once.
_EMBEDDING_DEVIATION = 0.1


class Cache:
    """Keys and values of what was read so far, per layer."""

    def __init__(self) -> None:
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}

    @property
    def length(self) -> int:
        return self._layers[0][0].shape[2] if self._layers else 0

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values of `layer` up to now, [rows, KV heads, length, head_dim]."""
        if layer in self._layers:
            before = self._layers[layer]
            k, v = torch.cat([before[0], k], dim=2), torch.cat([before[1], v], dim=2)
        self._layers[layer] = (k, v)
        return k, v


class Layer(nn.Module):
    """One layer; norms have no weights."""

    def __init__(self, config: ModelConfig, index: int) -> None:
        super().__init__()
        self._config = config
        self._index = index
        hidden, head = config.hidden, config.head_dim
        self.q = _matrix(config.num_q_heads * head, hidden)
        self.k = _matrix(config.num_kv_heads * head, hidden)
        self.v = _matrix(config.num_kv_heads * head, hidden)
        self.gate = _matrix(config.ffn, hidden)
        self.up = _matrix(config.ffn, hidden)
        # A layer does nothing at first.
        self.o = nn.Parameter(torch.zeros(hidden, config.num_q_heads * head))
        self.down = nn.Parameter(torch.zeros(hidden, config.ffn))

    def forward(self, x: Tensor, seen: Tensor, turns: tuple[Tensor, Tensor], cache: Cache | None) -> Tensor:
        x = x + self._attention(_norm(x, self._config), seen, turns, cache)
        h = _norm(x, self._config)
        return x + linear(silu(linear(h, self.gate)) * linear(h, self.up), self.down)

    def _attention(
        self, h: Tensor, seen: Tensor, turns: tuple[Tensor, Tensor], cache: Cache | None
    ) -> Tensor:
        config = self._config
        q, k, v = (_heads(linear(h, matrix), config.head_dim) for matrix in (self.q, self.k, self.v))
        q, k = _turned(q, turns), _turned(k, turns)
        if cache is not None:
            k, v = cache.extend(self._index, k, v)
        group = config.num_q_heads // config.num_kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        out = scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=config.softmax_scale)
        return linear(out.transpose(1, 2).flatten(2), self.o)


class Decoder(nn.Module):
    """The whole model, its first weights drawn from torch's global generator."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Parameter(torch.randn(config.vocab_size, config.hidden) * _EMBEDDING_DEVIATION)
        self.lm_head = nn.Parameter(torch.zeros(config.vocab_size, config.hidden))
        self.layers = nn.ModuleList(Layer(config, index) for index in range(config.num_layers))

    def forward(self, tokens: Tensor, seen: Tensor, cache: Cache | None = None) -> Tensor:
        """tokens [rows, length]; `seen` [rows, 1, length, all keys] is True where a query may look.

        Returns what the LM head is applied to, [rows, length, hidden].
        """
        start = 0 if cache is None else cache.length
        turns = _turns(self.config, range(start, start + tokens.shape[1]))
        x = self.embedding[tokens]
        for layer in self.layers:
            x = layer(x, seen, turns, cache)
        return _norm(x, self.config)

    def logits(self, hidden: Tensor) -> Tensor:
        return linear(hidden, self.lm_head)

    def matrices(self) -> list[nn.Parameter]:
        """The parameters inside layers."""
        return list(self.layers.parameters())

    def tables(self) -> list[nn.Parameter]:
        """The parameters with a row per token."""
        return [self.embedding, self.lm_head]

    def tensors(self) -> dict[str, Tensor]:
        """The weights by their names in a checkpoint."""
        named = {"embedding": self.embedding, "lm_head": self.lm_head}
        for index, layer in enumerate(self.layers):
            named |= {
                f"layers.{index}.qkv": torch.cat([layer.q, layer.k, layer.v]),
                f"layers.{index}.o_proj": layer.o,
                f"layers.{index}.gate_up": torch.cat([layer.gate, layer.up]),
                f"layers.{index}.down_proj": layer.down,
            }
        return {name: tensor.detach() for name, tensor in named.items()}

    @torch.no_grad()
    def load_tensors(self, named: Mapping[str, Tensor]) -> None:
        """The inverse of `tensors`."""
        self.embedding.copy_(named["embedding"])
        self.lm_head.copy_(named["lm_head"])
        for index, layer in enumerate(self.layers):
            qkv = named[f"layers.{index}.qkv"].split([len(layer.q), len(layer.k), len(layer.v)])
            gate_up = named[f"layers.{index}.gate_up"].chunk(2)
            for target, source in zip(
                (layer.q, layer.k, layer.v, layer.gate, layer.up), (*qkv, *gate_up), strict=True
            ):
                target.copy_(source)
            layer.o.copy_(named[f"layers.{index}.o_proj"])
            layer.down.copy_(named[f"layers.{index}.down_proj"])


def _matrix(rows: int, columns: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(rows, columns) * columns**-0.5)


def _norm(x: Tensor, config: ModelConfig) -> Tensor:
    return rms_norm(x, (config.hidden,), eps=config.norm_eps)


def _heads(x: Tensor, head_dim: int) -> Tensor:
    """[rows, length, heads · head_dim] -> [rows, heads, length, head_dim]."""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


def _turns(config: ModelConfig, positions: range) -> tuple[Tensor, Tensor]:
    """Cosines and sines of rotary positions, [length, head_dim / 2]."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
    angles = torch.tensor(positions, dtype=torch.float64)[:, None] * config.rope_theta**-exponents
    return angles.cos().float(), angles.sin().float()


def _turned(heads: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    """Elements (2i, 2i+1) are a pair, as in the engine."""
    cos, sin = turns
    even, odd = heads[..., 0::2], heads[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)
