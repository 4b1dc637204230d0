"""Runners: whether, and for which backend, the all-to-all workspace of DCP is made before graphs are captured."""

from __future__ import annotations

from types import SimpleNamespace

from harness.reads.bare import StandIn
from harness.reads.registry import Kind, Role, consumer
from harness.reads.sources import FI_A2A
from harness.reads.stage import Stage
from harness.topology import InjectedWorker

_MAKE_WORKSPACE = "sglang.srt.model_executor.runner.base_runner:BaseRunner._pre_initialize_fi_a2a_workspace"


@consumer("base_runner.fi_a2a_gate", kind=Kind.GATE, drives=_MAKE_WORKSPACE)
def fi_a2a_gate(worker: InjectedWorker, role: Role, stage: Stage) -> bool:
    """The workspace is made where DCP is on; the backend is fi_a2a wherever it is read."""
    return _makes_workspace(stage, given=FI_A2A, published=FI_A2A)


@consumer("base_runner.fi_a2a_backend", kind=Kind.BACKEND, drives=_MAKE_WORKSPACE)
def fi_a2a_backend(worker: InjectedWorker, role: Role, stage: Stage) -> bool:
    """The backend was changed after the launch: is it the published one that counts, or a stale instance's?"""
    return _makes_workspace(stage, given=stage.backends["seed"], published=stage.backends["live"])


def _makes_workspace(stage: Stage, *, given: str, published: str) -> bool:
    from sglang.srt.layers import dcp
    from sglang.srt.model_executor.runner.base_runner import BaseRunner

    make = StandIn(name="init_fi_a2a_workspace")
    stage.patch(dcp, "init_fi_a2a_workspace", make)
    stage.give(dcp_comm_backend=given)
    stage.publish(dcp_comm_backend=published)
    # A gate that opens by another source asks for the group even where live topology has none.
    stage.live(dcp_group=object())
    BaseRunner._pre_initialize_fi_a2a_workspace(SimpleNamespace(model_runner=stage.runner))
    return make.called
