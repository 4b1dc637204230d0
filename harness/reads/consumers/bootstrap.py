"""The start of a rank's process groups: how large a DCP group is built. Only a target starts them."""

from __future__ import annotations

import inspect
from typing import Any

from harness.errors import EngineError
from harness.reads.bare import Call, LastCall, StandIn
from harness.reads.registry import Kind, Role, consumer
from harness.reads.stage import Stage
from harness.topology import InjectedWorker

_MODULE = "sglang.srt.distributed.bootstrap"


@consumer(
    "bootstrap.group_size",
    kind=Kind.SCALE,
    drives=(f"{_MODULE}:init_torch_distributed", f"{_MODULE}:init_parallel_runtime"),
    roles=(Role.TARGET,),
)
def group_size(worker: InjectedWorker, role: Role, stage: Stage) -> int:
    """Ranks of the DCP group that holds this one: what `initialize_model_parallel` is given, or builds by itself."""
    from sglang.srt.distributed import bootstrap, parallel_state

    end = LastCall()
    if _takes_sizes(parallel_state.initialize_model_parallel):
        stage.patch(bootstrap, "initialize_model_parallel", end)
        given: int = _start(stage, end).named["decode_context_parallel_size"]
        return given
    return len(_built_group(stage))


@consumer(
    "bootstrap.ps_field", kind=Kind.FACT, drives=f"{_MODULE}:init_torch_distributed", roles=(Role.TARGET,)
)
def ps_field(worker: InjectedWorker, role: Role, stage: Stage) -> str:
    """Under which name the size is read from the per-worker state: it changed, the source did not."""
    from sglang.srt.distributed import bootstrap

    end = LastCall()
    stage.patch(bootstrap, "initialize_model_parallel", end)
    read = _NamesRead(stage.ps)
    _start(stage, end, ps=read)
    return ", ".join(sorted(name for name in read.names if "dcp" in name))


class _NamesRead:
    """A per-worker state that keeps which of its fields were read."""

    def __init__(self, ps: Any) -> None:
        self.names: set[str] = set()
        self._ps = ps

    def __getattr__(self, name: str) -> Any:
        self.names.add(name)
        return getattr(self._ps, name)


def _takes_sizes(initialize: Any) -> bool:
    return "decode_context_parallel_size" in inspect.signature(initialize).parameters


def _built_group(stage: Stage) -> list[int]:
    """The group of this rank, where the release takes the sizes from the published topology; itself where it
    builds none."""
    from sglang.srt.distributed import parallel_state

    end = LastCall()

    def built(groups: list[list[int]], *args: object, group_name: str, **named: object) -> Any:
        if group_name == "tp":
            return StandIn()
        # The next group after it: what is built later would stay in the package's globals.
        return end(groups if group_name == "dcp" else [[stage.worker.rank]])

    stage.patch(parallel_state, "init_model_parallel_group", built)
    stage.patch(parallel_state, "get_world_group", StandIn())
    stage.patch(parallel_state, "is_cuda", lambda: True)  # elsewhere DCP is refused
    stage.patch(parallel_state, "_TP", None)
    stage.patch(parallel_state, "_DCP", None)
    stage.patch(parallel_state.torch.distributed, "is_initialized", lambda: True)
    stage.patch(parallel_state.torch.distributed, "get_world_size", lambda: stage.worker.ps.tp_size)
    stage.patch(parallel_state.torch.distributed, "get_backend", lambda group: "gloo")
    (groups,) = _start(stage, end).args
    for group in groups:
        if stage.worker.rank in group:
            return list(group)
    raise EngineError(f"rank {stage.worker.rank} is in none of the DCP groups {groups}")


def _start(stage: Stage, end: LastCall, *, ps: Any = None) -> Call:
    """Start the process groups, up to the call of `end`, without devices, network or threads."""
    from sglang.srt.distributed import bootstrap

    for name in (
        "get_available_gpu_memory",
        "monkey_patch_p2p_access_check",
        "init_distributed_environment",
        "_init_cpu_threads_env",
        "_bind_threads_if_cpu",
        "_set_all_reduce_flags",
        "maybe_init_shared_mooncake_transfer_engine",
    ):
        if hasattr(bootstrap, name):
            stage.patch(bootstrap, name, StandIn())
    if hasattr(bootstrap, "_PARALLEL_INITIALISED"):
        stage.patch(bootstrap, "_PARALLEL_INITIALISED", False)
    start = getattr(bootstrap, "init_torch_distributed", None) or bootstrap.init_parallel_runtime
    given = {
        "server_args": stage.server_args,
        "model_config": StandIn(),
        "device": "cpu",
        "ps": ps or stage.ps,
        "dist_port": 0,
        "is_draft_worker": False,
        "local_omp_cpuid": None,
    }
    wanted = inspect.signature(start).parameters
    return end.of(start, **{name: value for name, value in given.items() if name in wanted})
