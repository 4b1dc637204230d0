"""One forward pass: which tokens a rank writes on HIP, and whether the eager runner plans for DCP."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from harness.errors import EngineError
from harness.reads.bare import LastCall, Recorder, StandIn, bare
from harness.reads.consumers.model_runner import bare_runner
from harness.reads.registry import Kind, Role, consumer
from harness.reads.stage import Stage
from harness.topology import InjectedWorker

_INIT_NEW = "sglang.srt.model_executor.forward_batch_info:ForwardBatch.init_new"
_EXTEND = "sglang.srt.model_executor.runner.eager_runner:EagerRunner._execute_extend"

# Decoded positions, more than the ranks of any group.
_TOKENS = 100


@consumer("forward_batch.kv_mask_gate", kind=Kind.GATE, drives=_INIT_NEW)
def kv_mask_gate(worker: InjectedWorker, role: Role, stage: Stage) -> bool:
    """Whether a batch has a mask at all."""
    return bool(_asked(stage))


@consumer("forward_batch.kv_mask_size", kind=Kind.SCALE, drives=_INIT_NEW)
def kv_mask_size(worker: InjectedWorker, role: Role, stage: Stage) -> int | None:
    """Every how many tokens one is this rank's."""
    return _asked(stage).get("size")


@consumer("forward_batch.kv_mask_rank", kind=Kind.RANK, drives=_INIT_NEW)
def kv_mask_rank(worker: InjectedWorker, role: Role, stage: Stage) -> int | None:
    """Which of so many this rank's are."""
    return _asked(stage).get("rank")


@consumer("eager_runner.extend_metadata", kind=Kind.GATE, drives=_EXTEND)
def extend_metadata(worker: InjectedWorker, role: Role, stage: Stage) -> bool:
    """Whether a model that plans its DCP prefix gather is asked to."""
    from sglang.srt.model_executor.runner import eager_runner

    for name in ("get_req_to_token_pool", "get_token_to_kv_pool"):
        stage.patch(eager_runner, name, StandIn())
    for name in ("is_cp_v2_active", "is_cp_active"):  # prefill context parallelism: another axis, by release
        if hasattr(eager_runner, name):
            stage.patch(eager_runner, name, lambda _batch: False)
    planned, end = Recorder(), LastCall()
    model_runner = bare_runner(
        stage,
        model=SimpleNamespace(prepare_context_parallel_metadata_for_dcp=planned),
        attn_backend=SimpleNamespace(init_forward_metadata=end),
        kv_cache_dtype=None,
        _extend_forward_kwargs=StandIn(),
    )
    # As under PD multiplexing, where the batch is not copied into static buffers first.
    eager = bare(eager_runner.EagerRunner, model_runner=model_runner, enable_pdmux=True)
    batch = StandIn(needs_forward_metadata_init=lambda: True)
    end.of(eager._execute_extend, batch)
    return bool(planned.calls)


def _asked(stage: Stage) -> dict[str, int]:
    """The `size` and `rank` by which a decode batch on HIP picks its own tokens; empty where it has no mask."""
    import torch
    from sglang.srt.managers.schedule_batch import ScheduleBatch
    from sglang.srt.model_executor import forward_batch_info

    told: dict[str, int] = {}
    stage.patch(forward_batch_info, "is_hip", lambda: True)
    stage.patch(forward_batch_info, "clamp_position", lambda ends: _watched(ends - 1, told))
    ends = torch.arange(1, _TOKENS + 1)
    batch = ScheduleBatch(
        reqs=[],
        forward_mode=forward_batch_info.ForwardMode.DECODE,
        input_ids=ends,
        seq_lens=ends,
        seq_lens_cpu=ends,
        out_cache_loc=ends,
        req_pool_indices=ends,
        spec_algorithm=StandIn(),
        device="cpu",
    )
    made = forward_batch_info.ForwardBatch.init_new(
        batch, _decode_runner(stage), return_hidden_states_before_norm=False
    )
    if made.dcp_kv_mask is None:
        return {}
    if told.keys() != {"size", "rank"}:
        raise EngineError("the mask is no longer position % size == rank, so this probe sees nothing of it")
    return told


def _watched(positions: Any, told: dict[str, int]) -> Any:
    """Real positions that keep what they were divided by and compared with: a mask alone tells neither where the
    rank is not below the size."""
    import torch

    class Positions(torch.Tensor):  # type: ignore[misc]
        def __mod__(self, size: int) -> Any:
            told["size"] = size
            return super().__mod__(size)

        def __eq__(self, rank: object) -> Any:
            told["rank"] = rank  # type: ignore[assignment]
            return super().__eq__(rank)

        __hash__ = torch.Tensor.__hash__

    return positions.as_subclass(Positions)


def _decode_runner(stage: Stage) -> Any:
    return bare_runner(
        stage,
        ngram_embedding_manager=SimpleNamespace(enabled=False),
        model_config=SimpleNamespace(model_is_mrope=False, requires_mm_token_modalities=False),
        lora_manager=None,
        kv_index_translator=StandIn(),
    )
