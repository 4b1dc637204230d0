"""Weights, made from a seed or read from a checkpoint, and the part of them that one rank holds.

Every rank makes or reads the whole model (below 1 M numbers, a few milliseconds) and keeps its slices, so no
rank waits for another and the same model comes out at every topology. Query heads and ffn columns are cut over
the TP ranks, KV heads over the DCP groups and replicated inside one; embedding and LM head are replicated,
since a vocabulary of a few hundred is not worth a collective per step.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from safetensors.torch import load
from torch import Tensor

from harness.refengine.layout_seams import stored_kv_heads
from harness.refengine.model import ModelConfig
from harness.refengine.served_model import ServedModel
from harness.topology import q_head_range

TORCH_DTYPES: dict[str, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """One layer. Matrices are [out, in]; `qkv` stacks query, key and value heads, `gate_up` gate and up."""

    qkv: Tensor
    o_proj: Tensor
    gate_up: Tensor
    down_proj: Tensor

    def to(self, device: torch.device) -> LayerWeights:
        """The same on `device`; free where it is there already."""
        return LayerWeights(
            qkv=self.qkv.to(device),
            o_proj=self.o_proj.to(device),
            gate_up=self.gate_up.to(device),
            down_proj=self.down_proj.to(device),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWeights:
    """A model, whole or one rank's part. `embedding`, `lm_head` are [vocab, hidden]; norms have no weight."""

    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    lm_head: Tensor

    def to(self, device: torch.device) -> ModelWeights:
        """The same on `device`; free where it is there already."""
        return ModelWeights(
            embedding=self.embedding.to(device),
            layers=tuple(layer.to(device) for layer in self.layers),
            lm_head=self.lm_head.to(device),
        )


def model_weights(model: ServedModel, *, seed: int, dtype: torch.dtype) -> ModelWeights:
    """The whole model: as trained where there is a checkpoint, whose `seed` is spent, else random."""
    if model.checkpoint is None:
        return random_weights(model.config, seed=seed, dtype=dtype)
    tensors = {name: tensor.to(dtype) for name, tensor in load(model.checkpoint.data).items()}
    layers = tuple(
        LayerWeights(**{field: tensors[f"layers.{index}.{field}"] for field in LayerWeights.__slots__})
        for index in range(model.config.num_layers)
    )
    return ModelWeights(embedding=tensors["embedding"], layers=layers, lm_head=tensors["lm_head"])


def random_weights(model: ModelConfig, *, seed: int, dtype: torch.dtype) -> ModelWeights:
    """The whole model for `seed`, drawn in fp32 and rounded to `dtype`.

    Entries have variance 1/fan_in, so that activations keep a deviation near 1 and no logit saturates.
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(rows: int, columns: int, *, scale: float) -> Tensor:
        return (torch.randn(rows, columns, generator=generator) * scale).to(dtype)

    def fan_in(rows: int, columns: int) -> Tensor:
        return draw(rows, columns, scale=columns**-0.5)

    heads = model.num_q_heads + 2 * model.num_kv_heads
    embedding = draw(model.vocab_size, model.hidden, scale=1.0)
    layers = tuple(
        LayerWeights(
            qkv=fan_in(heads * model.head_dim, model.hidden),
            o_proj=fan_in(model.hidden, model.num_q_heads * model.head_dim),
            gate_up=fan_in(2 * model.ffn, model.hidden),
            down_proj=fan_in(model.hidden, model.ffn),
        )
        for _ in range(model.num_layers)
    )
    lm_head = draw(model.vocab_size, model.hidden, scale=model.logit_scale * model.hidden**-0.5)
    return ModelWeights(embedding=embedding, layers=layers, lm_head=lm_head)


def shard_weights(
    whole: ModelWeights, model: ModelConfig, *, tp_size: int, dcp_size: int, tp_rank: int
) -> ModelWeights:
    """The part of `whole` that `tp_rank` computes with; shapes must divide (`check_model_topology`)."""
    q_heads = q_head_range(num_q_heads=model.num_q_heads, tp_size=tp_size, tp_rank=tp_rank)
    kv_heads = stored_kv_heads(
        num_kv_heads=model.num_kv_heads, tp_size=tp_size, dcp_size=dcp_size, tp_rank=tp_rank
    )
    columns = model.ffn // tp_size
    ffn = range(tp_rank * columns, (tp_rank + 1) * columns)
    layers = tuple(
        _shard_layer(layer, model, q_heads=q_heads, kv_heads=kv_heads, ffn=ffn) for layer in whole.layers
    )
    return ModelWeights(embedding=whole.embedding, layers=layers, lm_head=whole.lm_head)


def _shard_layer(
    layer: LayerWeights, model: ModelConfig, *, q_heads: range, kv_heads: range, ffn: range
) -> LayerWeights:
    query, key, value = layer.qkv.view(-1, model.head_dim, model.hidden).split(
        [model.num_q_heads, model.num_kv_heads, model.num_kv_heads]
    )
    own = [query[_cut(q_heads)], key[_cut(kv_heads)], value[_cut(kv_heads)]]
    gate, up = layer.gate_up.chunk(2)
    o_columns = slice(q_heads.start * model.head_dim, q_heads.stop * model.head_dim)
    return LayerWeights(
        qkv=torch.cat(own).reshape(-1, model.hidden),
        o_proj=layer.o_proj[:, o_columns].contiguous(),
        gate_up=torch.cat([gate[_cut(ffn)], up[_cut(ffn)]]),
        down_proj=layer.down_proj[:, _cut(ffn)].contiguous(),
    )


def _cut(part: range) -> slice:
    return slice(part.start, part.stop)
