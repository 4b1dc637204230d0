"""The shape of a model, those of the random ones, and which topologies can hold a shape.

A model is a decoder of Llama's kind: RMSNorm, grouped-query attention with rotary positions, SwiGLU. Where its
weights come from is told by its name (`served_model`). Nothing here imports torch, so that a launch is refused
before any process starts: shapes which do not divide over the ranks raise `UsageError`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from harness.errors import UsageError
from harness.topology import ParallelConfig

# Bytes 0–255 are tokens of their own, then the two marks: begin and end of a text.
BYTE_VOCABULARY = 258


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Shape of one model; sizes count elements. The defaults are those of `builtin:random-gqa`."""

    name: str
    vocab_size: int = BYTE_VOCABULARY
    hidden: int = 128
    num_layers: int = 2
    num_q_heads: int = 8
    num_kv_heads: int = 2
    # The smallest head that a GPU kernel's dot product takes.
    head_dim: int = 16
    ffn: int = 256
    rope_theta: float = 10_000.0
    max_positions: int = 8192
    norm_eps: float = 1e-6
    # Multiplies 1/sqrt(head_dim). With random weights, scores then have a deviation of about 2: uneven enough
    # for a wrong shard weight to show in every log-probability, even enough that every shard keeps a say.
    qk_scale: float = 2.0
    # Deviation of the logits of random weights: the likeliest token has a probability of about 0.2, so nothing
    # is saturated.
    logit_scale: float = 2.0

    @property
    def softmax_scale(self) -> float:
        """What a query-key product is multiplied by before the softmax."""
        return self.qk_scale / math.sqrt(self.head_dim)


# Their weights are drawn from `--seed` (`weights.random_weights`).
RANDOM_MODELS: dict[str, ModelConfig] = {
    model.name: model
    for model in (
        ModelConfig(name="builtin:random-gqa"),
        ModelConfig(name="builtin:random-gqa-kv1", num_kv_heads=1),
        ModelConfig(name="builtin:random-gqa-kv8", num_kv_heads=8),
    )
}


def check_model_topology(model: ModelConfig, parallel: ParallelConfig) -> None:
    """Raise UsageError where a shape does not divide over the ranks, since a silent remainder loses weights.

    Query heads and ffn are cut over the TP ranks. KV heads are cut over the tp/dcp DCP groups; where there
    are more groups than heads, each head is held by several whole groups.
    """
    for what, count in (("query heads", model.num_q_heads), ("ffn columns", model.ffn)):
        if count % parallel.tp_size:
            raise UsageError(
                f"model {model.name} has {count} {what}, which tp {parallel.tp_size} does not divide"
            )
    groups = parallel.tp_size // parallel.dcp_size
    if model.num_kv_heads % groups and groups % model.num_kv_heads:
        raise UsageError(
            f"model {model.name} has {model.num_kv_heads} KV heads for {groups} DCP groups "
            f"(tp {parallel.tp_size} / dcp {parallel.dcp_size}); one must divide the other"
        )
