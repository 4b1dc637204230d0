"""The speculative workers: which per-worker state they hand to the draft's worker.

Each is constructed up to the construction of that worker.
"""

from __future__ import annotations

import copy
import importlib
import inspect
from dataclasses import dataclass, replace
from typing import Any

from harness.reads.bare import LastCall, StandIn, bare
from harness.reads.registry import Kind, Role, consumer
from harness.reads.stage import ConsumerAbsentError, Stage
from harness.topology import InjectedWorker

_ROOT = "sglang.srt.speculative"


@dataclass(frozen=True, slots=True)
class _Speculative:
    """One speculative worker: the class that makes the draft's worker, and the algorithm that chooses it."""

    module: str
    name: str
    algorithm: str


_WORKERS = (
    _Speculative("eagle_worker_v2", "EagleDraftWorker", "EAGLE"),
    _Speculative("multi_layer_eagle_worker_v2", "MultiLayerEagleDraftWorker", "EAGLE"),
    _Speculative("standalone_worker_v2", "StandaloneDraftWorker", "STANDALONE"),
    _Speculative("frozen_kv_mtp_worker_v2", "FrozenKVMTPDraftWorker", "FROZEN_KV_MTP"),
    _Speculative("dflash_worker_v2", "DFlashWorkerV2", "DFLASH"),
    _Speculative("dspark_components.dspark_worker_v2", "DSparkWorkerV2", "DSPARK"),
)


@consumer(
    "draft_worker.ps",
    kind=Kind.SCALE,
    drives=f"{_ROOT}.eagle_worker_v2:EagleDraftWorker.__init__",
    roles=(Role.DRAFT,),
)
def draft_ps(worker: InjectedWorker, role: Role, stage: Stage) -> int | str:
    """The DCP size that a draft's worker is given: one number where all agree, else each by its name.

    Their target stands in the second pipeline stage, and a draft always in the first.
    """
    given = {each.name: _given(each, stage) for each in _WORKERS}
    answers = {(ps.pp_rank, ps.attn_dcp_size) for ps in given.values()}
    (pp_rank, size), *others = answers
    if others or pp_rank != 0:
        return ", ".join(f"{name} pp {ps.pp_rank} dcp {ps.attn_dcp_size}" for name, ps in given.items())
    return int(size)


def _given(speculative: _Speculative, stage: Stage) -> Any:
    """The state that this worker hands on."""
    from sglang.srt.managers.tp_worker import TpModelWorker

    made_by = getattr(importlib.import_module(f"{_ROOT}.{speculative.module}"), speculative.name)
    if "ps" not in inspect.signature(made_by.__init__).parameters:
        raise ConsumerAbsentError(f"{speculative.name} takes no ps")
    end = LastCall()
    stage.patch(TpModelWorker, "__init__", end)
    call = end.of(
        bare(made_by).__init__,
        server_args=_server_args(speculative, stage),
        gpu_id=0,
        ps=replace(stage.ps, pp_rank=1),
        nccl_port=0,
        target_worker=StandIn(device="cpu"),
    )
    return call.named["ps"]


def _server_args(speculative: _Speculative, stage: Stage) -> Any:
    """The launch arguments, asking for a chain of three drafted tokens."""
    worker: Any = stage.worker
    args = copy.copy(worker.server_args)
    for name, value in {
        "speculative_algorithm": speculative.algorithm,
        "speculative_eagle_topk": 1,
        "speculative_num_steps": 3,
        "speculative_num_draft_tokens": 4,
    }.items():
        object.__setattr__(args, name, value)  # published arguments refuse assignment
    return args
