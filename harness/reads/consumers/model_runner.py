"""The model runner: what its constructor copies onto it, and whether it gathers the query projection."""

from __future__ import annotations

from typing import Any

from harness.reads.bare import Recorder, StandIn, View, bare
from harness.reads.registry import Kind, Role, consumer
from harness.reads.stage import Stage
from harness.topology import InjectedWorker

_CLASS = "sglang.srt.model_executor.model_runner:ModelRunner"


@consumer("model_runner.copy_size", kind=Kind.SCALE, drives=f"{_CLASS}.__init__")
def copy_size(worker: InjectedWorker, role: Role, stage: Stage) -> int | None:
    """`dcp_size` of a runner that its own constructor made."""
    return stage.copied.size


@consumer("model_runner.copy_rank", kind=Kind.RANK, drives=f"{_CLASS}.__init__")
def copy_rank(worker: InjectedWorker, role: Role, stage: Stage) -> int | None:
    """`dcp_rank` of a runner that its own constructor made."""
    return stage.copied.rank


@consumer("model_runner.q_proj_gate", kind=Kind.GATE, drives=f"{_CLASS}.init_attention_backends")
def q_proj_gate(worker: InjectedWorker, role: Role, stage: Stage) -> bool:
    """Whether `--dcp-replicate-q-proj` is acted upon."""
    from sglang.srt.model_executor import model_runner

    for name in (
        "configure_aux_hidden_state_capture",
        "resolve_attention_backend_strs",
        "build_attention_backends",
    ):
        if hasattr(model_runner, name):
            stage.patch(model_runner, name, StandIn())
    # The launch arguments refuse the switch where their own DCP is off.
    view = View(model_runner.get_parallel(), dcp_replicate_q_proj=True)
    stage.patch(model_runner, "get_parallel", lambda: view)
    gathered = Recorder()
    runner = bare_runner(
        stage,
        spec_algorithm=StandIn(),
        spec_aux_config=StandIn(),
        kv_index_translator=StandIn(),
        model=None,
        _prepare_replicated_q_proj=gathered,
    )
    runner.init_attention_backends()
    return bool(gathered.calls)


def bare_runner(stage: Stage, **attributes: Any) -> Any:
    """A real ModelRunner that carries what the stage's runner carries, and these attributes."""
    from sglang.srt.model_executor.model_runner import ModelRunner

    return bare(ModelRunner, **(vars(stage.runner) | attributes))
