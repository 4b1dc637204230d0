"""One rank's model and KV pool: the scheduler hands it a `Batch`, it answers with logits.

Made once per rank after the communicators are up; every rank then calls `forward` with the same batches in
the same order, since each step is a fixed sequence of collectives. Per layer, decode takes five over ag_rs
(gather Q, gather LSE, reduce-scatter outputs, two TP all-reduces) and four over a2a; extend takes two, three
where a sequence has a prefix. With dcp 1 there is no group to talk to and no DCP collective is made.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import linear, rms_norm

from harness.errors import UsageError
from harness.refengine.attention import TorchAttention, merge_a2a, merge_ag_rs
from harness.refengine.batch import Batch
from harness.refengine.comm import Comms
from harness.refengine.config import AttentionBackend, DcpCommBackend, Device, EngineConfig
from harness.refengine.kv_pool import KVPool
from harness.refengine.layers import Attention, DecoderLayer, Merge, Rotary
from harness.refengine.layout_seams import kv_head_map, pool_layout, stored_kv_heads
from harness.refengine.model import ModelConfig, check_model_topology
from harness.refengine.served_model import resolve_model
from harness.refengine.step_plan import make_step_plan
from harness.refengine.triton_kernels.backend import TritonAttention, merge_ranks
from harness.refengine.triton_kernels.loading import prepare_kernels
from harness.refengine.weights import TORCH_DTYPES, model_weights, shard_weights
from harness.topology import (
    Capacity,
    ParallelState,
    q_head_range,
    row_bytes,
    rows_for_budget,
)


class ModelRunner:
    """`parallel` is this worker's state (ps), `model` the shape, `model_sha256` the hash of its checkpoint, `pool`
    this rank's KV, `capacity` what the DCP group holds, `row_bytes` of one row.

    Raises UsageError where the model does not divide over the topology or the budget holds no page.
    """

    def __init__(self, config: EngineConfig, *, comms: Comms, parallel: ParallelState) -> None:
        served = resolve_model(config.model)
        self.parallel = parallel
        self.model = served.config
        self.model_sha256 = served.sha256
        check_model_topology(self.model, config.parallel())
        self.layout = pool_layout(config)
        self.row_bytes = model_row_bytes(config, self.model)
        self.capacity = pool_capacity(config, self.model)
        self._dcp_rank = parallel.attn_dcp_rank
        self._device = _device(config, parallel)
        dtype = TORCH_DTYPES[config.dtype]
        tp = {"tp_size": config.tp, "tp_rank": parallel.tp_rank}
        kv_heads = stored_kv_heads(num_kv_heads=self.model.num_kv_heads, dcp_size=config.dcp, **tp)
        self.pool = KVPool(
            layout=self.layout,
            rows=self.capacity.rows_per_rank,
            num_layers=self.model.num_layers,
            kv_heads=len(kv_heads),
            head_dim=self.model.head_dim,
            dtype=dtype,
            poison=config.poison,
            device=self._device,
        )
        whole = model_weights(served, seed=config.seed, dtype=dtype)
        self._weights = shard_weights(whole, self.model, dcp_size=config.dcp, **tp).to(self._device)
        self._rotary = Rotary(self.model, self._device)
        own_heads = q_head_range(num_q_heads=self.model.num_q_heads, **tp)
        self._paged = config.attention_backend is AttentionBackend.TRITON
        attention, merge = self._attention(config, self._held_kv_heads(own_heads, kv_heads))
        self._layers = [
            DecoderLayer(
                index=index,
                model=self.model,
                weights=weights,
                pool=self.pool,
                comms=comms,
                merge=merge,
                attention=attention,
            )
            for index, weights in enumerate(self._weights.layers)
        ]

    def forward(self, batch: Batch, *, want_logits: bool = True) -> Tensor:
        """Compute the new tokens of `batch`, write their KV and tags, and return logits fp32 [rows, vocab].

        Rows stand in chunk order: one per chunk for its last token, or one per new token with `all_logits`.
        Only the rank that samples needs logits; the others pass want_logits=False and get [0, vocab].
        """
        with torch.inference_mode():
            plan = make_step_plan(batch, self.layout, self._dcp_rank, paged=self._paged).to(self._device)
            self.pool.write_tags(plan.write_rows, plan.tags)
            x = self._weights.embedding.index_select(0, plan.tokens).float()
            turns = self._rotary.turns(plan.rotary)
            for layer in self._layers:
                x = layer(x, plan, turns)
            return self._logits(x.index_select(0, plan.logit_tokens[: None if want_logits else 0]))

    def _logits(self, x: Tensor) -> Tensor:
        normed = rms_norm(x, (self.model.hidden,), eps=self.model.norm_eps)
        lm_head = self._weights.lm_head
        return linear(normed.to(lm_head.dtype), lm_head).float().cpu()

    def _attention(self, config: EngineConfig, own_kv: Tensor) -> tuple[Attention, Merge]:
        """What computes attention on this rank, and what merges it over the group.

        Both backends weight what they reduce-scatter in torch: there is nothing to sum on one rank.
        """
        a2a = config.dcp_comm_backend is DcpCommBackend.A2A
        if not self._paged:
            torch_attention = TorchAttention(scale=self.model.softmax_scale, own_kv=own_kv)
            return torch_attention, merge_a2a if a2a else merge_ag_rs
        prepare_kernels(cuda=config.device is Device.CUDA)
        attention = TritonAttention(scale=self.model.softmax_scale, page_size=config.page_size, own_kv=own_kv)
        return attention, partial(merge_a2a, merge=merge_ranks) if a2a else merge_ag_rs

    def _held_kv_heads(self, q_heads: range, kv_heads: range) -> Tensor:
        """For each of these global query heads, where its KV head stands among those held here."""
        model = self.model
        wanted = kv_head_map(q_heads, num_q_heads=model.num_q_heads, num_kv_heads=model.num_kv_heads)
        return torch.tensor([head - kv_heads.start for head in wanted], device=self._device)


def model_row_bytes(config: EngineConfig, model: ModelConfig) -> int:
    """Bytes of one row of a rank's pool; equal on all ranks, since all hold equally many KV heads."""
    kv_heads = stored_kv_heads(
        num_kv_heads=model.num_kv_heads, tp_size=config.tp, dcp_size=config.dcp, tp_rank=0
    )
    return row_bytes(
        num_layers=model.num_layers,
        kv_heads_per_rank=len(kv_heads),
        head_dim=model.head_dim,
        dtype_bytes=TORCH_DTYPES[config.dtype].itemsize,
    )


def pool_capacity(config: EngineConfig, model: ModelConfig) -> Capacity:
    """Rows of each rank: whole pages within `kv_bytes`, and no more than `max_total_tokens` in the aggregate.

    Raises UsageError (TopologyError from the budget) where not a single page is left.
    """
    rows = rows_for_budget(
        budget_bytes=config.kv_bytes, row_bytes=model_row_bytes(config, model), page_size=config.page_size
    )
    if config.max_total_tokens is not None:
        wide_page = config.layout().widened_page_size
        if config.max_total_tokens < wide_page:
            raise UsageError(
                f"--max-total-tokens is {config.max_total_tokens}; at page size {config.page_size} and "
                f"dcp {config.dcp} one page takes {wide_page} tokens"
            )
        rows = min(rows, config.max_total_tokens // wide_page * config.page_size)
    return Capacity(rows_per_rank=rows, dcp_size=config.dcp)


def _device(config: EngineConfig, parallel: ParallelState) -> torch.device:
    if config.device is Device.CUDA:
        return torch.device("cuda", parallel.gpu_id)
    return torch.device("cpu")
