"""Built-in models, the topologies that can hold them, and how their weights are cut."""

from __future__ import annotations

import pytest
import torch

from harness.errors import UsageError
from harness.refengine.model import ModelConfig, check_model_topology
from harness.refengine.served_model import resolve_model
from harness.refengine.weights import ModelWeights, random_weights, shard_weights
from harness.topology import ParallelConfig, kv_head_range


def test_unknown_models_list_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"'builtin:nothing'.*builtin:random-gqa, builtin:random-gqa-kv1"):
        resolve_model("builtin:nothing")


@pytest.mark.parametrize("name", ["builtin:random-gqa", "builtin:random-gqa-kv1", "builtin:random-gqa-kv8"])
@pytest.mark.parametrize(("tp", "dcp"), [(1, 1), (2, 2), (4, 4), (8, 8), (4, 2), (8, 2), (8, 4), (8, 1)])
def test_builtin_models_fit_every_topology_we_run(name: str, tp: int, dcp: int) -> None:
    check_model_topology(resolve_model(name).config, ParallelConfig(tp_size=tp, dcp_size=dcp))


@pytest.mark.parametrize(
    ("model", "tp", "said"),
    [
        (ModelConfig(name="m", num_q_heads=6), 4, "6 query heads, which tp 4"),
        (ModelConfig(name="m", ffn=250), 4, "250 ffn columns, which tp 4"),
        (ModelConfig(name="m", num_q_heads=12, ffn=264, num_kv_heads=4), 6, "4 KV heads for 6 DCP groups"),
    ],
)
def test_shapes_that_do_not_divide_are_named(model: ModelConfig, tp: int, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_model_topology(model, ParallelConfig(tp_size=tp))


def test_a_seed_makes_the_same_model_and_another_seed_another() -> None:
    model = resolve_model("builtin:random-gqa").config
    first, again, other = (random_weights(model, seed=seed, dtype=torch.float32) for seed in (1, 1, 2))
    assert torch.equal(first.layers[1].down_proj, again.layers[1].down_proj)
    assert not torch.equal(first.embedding, other.embedding)


def shards(model: ModelConfig, whole: ModelWeights, tp: int, dcp: int) -> list[ModelWeights]:
    return [shard_weights(whole, model, tp_size=tp, dcp_size=dcp, tp_rank=rank) for rank in range(tp)]


@pytest.mark.parametrize("kv_heads", [1, 2, 8])
@pytest.mark.parametrize(("tp", "dcp"), [(4, 4), (4, 2), (8, 2), (8, 1)])
def test_shards_put_together_are_the_model(tp: int, dcp: int, kv_heads: int) -> None:
    """Query heads and ffn are there exactly once, KV heads where the topology says."""
    model = ModelConfig(name="m", num_kv_heads=kv_heads)
    whole = random_weights(model, seed=0, dtype=torch.float32)
    parts = shards(model, whole, tp, dcp)
    size, own = model.head_dim, model.num_q_heads // tp * model.head_dim
    layer = whole.layers[0]
    cut = [part.layers[0] for part in parts]
    assert torch.equal(torch.cat([c.qkv[:own] for c in cut]), layer.qkv[: model.num_q_heads * size])
    assert torch.equal(torch.cat([c.o_proj for c in cut], dim=1), layer.o_proj)
    assert torch.equal(torch.cat([c.down_proj for c in cut], dim=1), layer.down_proj)
    gates, ups = zip(*(c.gate_up.chunk(2) for c in cut), strict=True)
    assert torch.equal(torch.cat([*gates, *ups]), layer.gate_up)
    keys, values = layer.qkv[model.num_q_heads * size :].chunk(2)
    for rank, part in enumerate(cut):
        held = kv_head_range(num_kv_heads=kv_heads, tp_size=tp, dcp_size=dcp, tp_rank=rank)
        rows = slice(held.start * size, held.stop * size)
        assert torch.equal(part.qkv[own:], torch.cat([keys[rows], values[rows]]))
