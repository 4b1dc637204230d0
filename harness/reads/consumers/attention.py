"""Attention: which backend may be made, and where a sparse-attention seed is remapped."""

from __future__ import annotations

import inspect

from harness.reads.registry import Kind, Role, consumer
from harness.reads.stage import Stage
from harness.topology import InjectedWorker

_REGISTRY = "sglang.srt.layers.attention.attention_registry"


@consumer(
    "attention_registry.trtllm_mla_gate", kind=Kind.GATE, drives=f"{_REGISTRY}:create_trtllm_mla_backend"
)
def trtllm_mla_gate(worker: InjectedWorker, role: Role, stage: Stage) -> bool:
    """The factory refuses trtllm_mla with speculative decoding where DCP is on; else it makes the backend."""
    from sglang.srt.layers.attention import attention_registry

    stage.give(speculative_algorithm="EAGLE", get_attention_backends=lambda: ("trtllm_mla", "trtllm_mla"))
    stage.publish(speculative_algorithm="EAGLE")
    if hasattr(attention_registry, "attention_backends_of"):  # 0.5.23: a function of the args, no method
        stage.patch(attention_registry, "attention_backends_of", lambda _args: ("trtllm_mla", "trtllm_mla"))
        stage.patch(attention_registry, "resolved_view", lambda args: args)
    stage.module("sglang.srt.layers.attention.trtllm_mla_backend", TRTLLMMLABackend=lambda runner: "made")
    stage.runner.use_mla_backend = True
    stage.runner.kv_cache_dtype = None
    try:
        made = attention_registry.create_trtllm_mla_backend(stage.runner)
    except ValueError as refusal:
        if "decode context parallelism" not in str(refusal):
            raise
        return True
    assert made == "made"
    return False


@consumer(
    "dsa.seed_remap",
    kind=Kind.GATE,
    drives="sglang.srt.layers.attention.dsa.utils:should_remap_pd_dsa_seed_to_local_slots",
)
def dsa_seed_remap(worker: InjectedWorker, role: Role, stage: Stage) -> bool:
    """A decode worker remaps the seed of a prefill worker to its own slots, unless DCP is on."""
    from sglang.srt.layers.attention.dsa import utils

    stage.patch(utils, "is_cuda", lambda: True)
    stage.give(disaggregation_mode="decode")
    stage.publish(disaggregation_mode="decode")
    remap = utils.should_remap_pd_dsa_seed_to_local_slots
    takes_args = inspect.signature(remap).parameters  # as it did when it read the args
    return not (remap(stage.server_args) if takes_args else remap())
