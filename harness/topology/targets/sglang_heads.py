"""Which heads a rank of the package computes and stores, called inside `inject(target="sglang")`.

A model's attention layer is constructed up to its QKV projection, which is where the package turns ranks into heads,
and weights that spell their own head number are loaded into it: the numbers that arrive are the answer.
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest.mock import patch

from harness.topology.targets.frames import CONTEXT_MODULE

# The first model whose K and V are replicated within a DCP group.
_MODEL_MODULE = "sglang.srt.models.qwen3_5"
_CONFIG_MODULE = "sglang.srt.configs.model_config"
# Two elements a head: a loader that cuts at elements in the place of heads would be seen.
_HEAD_DIM = 2
_HIDDEN = 4


@dataclass(frozen=True, slots=True)
class LoadedHeads:
    q: list[int]
    kv: list[int]


class _Constructed(Exception):
    """No error: ends a constructor once it has what is asked for."""

    def __init__(self, projection: Any) -> None:
        self.projection = projection


def load(*, num_q_heads: int, num_kv_heads: int) -> LoadedHeads:
    """The heads that this rank's projection takes from full weights."""
    projection = _projection(num_q_heads, num_kv_heads)
    for name, heads in (("q", num_q_heads), ("k", num_kv_heads), ("v", num_kv_heads)):
        projection.weight_loader(projection.weight, _numbered(heads), name)
    sizes = [projection.num_heads, projection.num_kv_heads, projection.num_kv_heads]
    q, k, v = projection.weight.split([size * _HEAD_DIM for size in sizes], dim=0)
    if _heads(k) != _heads(v):
        raise AssertionError(f"K holds the heads {_heads(k)}, V {_heads(v)}")
    return LoadedHeads(_heads(q), _heads(k))


def pool_heads(num_kv_heads: int) -> int:
    """The KV heads of one rank that a pool is made for."""
    module = importlib.import_module(_CONFIG_MODULE)
    parallel = importlib.import_module(CONTEXT_MODULE).get_parallel()
    config = module.ModelConfig.__new__(module.ModelConfig)
    config.hf_config = SimpleNamespace(model_type="qwen3_5_text")
    config.hf_text_config = SimpleNamespace(num_key_value_heads=num_kv_heads)
    config.is_draft_model = False
    return int(config.get_num_kv_heads(parallel.attn_tp_size, parallel.attn_dcp_size))


def replicates_kv() -> bool:
    """Whether this release stores a group's KV heads on each of its ranks (from 0.5.18 on)."""
    config = importlib.import_module(_CONFIG_MODULE).ModelConfig
    return "dcp_size" in inspect.signature(config.get_num_kv_heads).parameters


def _projection(num_q_heads: int, num_kv_heads: int) -> Any:
    module = importlib.import_module(_MODEL_MODULE)
    real = module.QKVParallelLinear

    def construct(*arguments: Any, **named: Any) -> NoReturn:
        raise _Constructed(real(*arguments, **named))

    config = SimpleNamespace(
        hidden_size=_HIDDEN,
        head_dim=_HEAD_DIM,
        num_attention_heads=num_q_heads,
        num_key_value_heads=num_kv_heads,
        num_hidden_layers=1,
        full_attention_interval=1,
        attn_output_gate=False,
        model_type="qwen3_5_text",
    )
    with (
        patch.object(module, "QKVParallelLinear", construct),
        patch.object(module, "get_rope_config", lambda _: (10000, None)),
        patch.object(module, "get_rope", lambda **_: None),
    ):
        try:
            module.Qwen3_5AttentionDecoderLayer(config, layer_id=0)
        except _Constructed as done:
            return done.projection
    raise AssertionError("the attention layer was constructed without a QKV projection")


def _numbered(heads: int) -> Any:
    """Weights of that many heads; each row says which head it belongs to."""
    torch = importlib.import_module("torch")
    numbers = torch.arange(heads, dtype=torch.float32).repeat_interleave(_HEAD_DIM)
    return numbers[:, None].expand(-1, _HIDDEN).contiguous()


def _heads(weight: Any) -> list[int]:
    """The head numbers of loaded rows. Raises AssertionError where rows of one head differ."""
    rows = [{int(value) for value in row} for row in weight.tolist()]
    heads = [rows[index : index + _HEAD_DIM] for index in range(0, len(rows), _HEAD_DIM)]
    if any(len(set.union(*head)) != 1 for head in heads):
        raise AssertionError(f"rows of one head come from several: {rows}")
    return [next(iter(head[0])) for head in heads]
