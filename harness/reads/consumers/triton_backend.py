"""The Triton attention backend: it reads the live topology, for a draft's runner as well.

Upstream left that open; 0.5.23 closes it for DSpark drafts on HIP alone.
"""

from __future__ import annotations

from typing import Any

from harness.reads.bare import LastCall, StandIn, bare
from harness.reads.consumers.model_runner import bare_runner
from harness.reads.registry import Kind, Role, consumer
from harness.reads.stage import Stage
from harness.topology import InjectedWorker

_INIT = "sglang.srt.layers.attention.triton_backend:TritonAttnBackend.__init__"


@consumer("triton_backend.dcp_size", kind=Kind.SCALE, drives=_INIT)
def dcp_size(worker: InjectedWorker, role: Role, stage: Stage) -> int:
    """Over how many ranks the backend takes the KV of a sequence to be spread."""
    size: int = _backend(stage).dcp_size
    return size


@consumer("triton_backend.dcp_rank", kind=Kind.RANK, drives=_INIT)
def dcp_rank(worker: InjectedWorker, role: Role, stage: Stage) -> int:
    """Which of them this rank is."""
    rank: int = _backend(stage).dcp_rank
    return rank


@consumer("triton_backend.hip_dspark_size", kind=Kind.SCALE, drives=_INIT, roles=(Role.DRAFT,))
def hip_dspark_size(worker: InjectedWorker, role: Role, stage: Stage) -> int:
    """The same for the draft of DSpark on HIP."""
    from sglang.srt.layers.attention import triton_backend

    if hasattr(triton_backend, "_is_hip"):
        stage.patch(triton_backend, "_is_hip", True)
    size: int = _backend(stage, is_dspark=True).dcp_size
    return size


def _backend(stage: Stage, *, is_dspark: bool = False) -> Any:
    """A backend constructed up to the model's number of heads, the first thing that it multiplies."""
    from sglang.srt.layers.attention.triton_backend import TritonAttnBackend

    heads = LastCall()
    algorithm = StandIn()
    algorithm.is_dspark.return_value = is_dspark
    runner = bare_runner(
        stage,
        req_to_token_pool=StandIn(),
        token_to_kv_pool=StandIn(),
        token_to_kv_pool_allocator=StandIn(translate_kv_loc_dense=None),
        sliding_window_size=None,
        page_size=1,
        model_config=StandIn(get_max_num_attention_heads=heads),
        spec_algorithm=algorithm,
        kv_index_translator=StandIn(),
        kv_cache_dtype=None,
        decode_num_tokens_per_req=StandIn(),
    )
    backend = bare(TritonAttnBackend)
    heads.of(backend.__init__, runner)
    return backend
