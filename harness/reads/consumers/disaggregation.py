"""Prefill-decode disaggregation: the place in its DCP group that a KV manager tells its peers."""

from __future__ import annotations

from typing import Any

from harness.reads.bare import StandIn
from harness.reads.registry import Kind, Role, consumer
from harness.reads.stage import Stage
from harness.topology import InjectedWorker

_INIT = "sglang.srt.disaggregation.common.conn:CommonKVManager.__init__"


@consumer("pd_connection.size", kind=Kind.SCALE, roles=(Role.TARGET,), drives=_INIT)
def size(worker: InjectedWorker, role: Role, stage: Stage) -> int:
    """The size that a KV manager tells: it decides whether two sides must relayout what they exchange."""
    return int(_manager(worker, stage).dcp_size)


@consumer("pd_connection.rank", kind=Kind.RANK, roles=(Role.TARGET,), drives=_INIT)
def rank(worker: InjectedWorker, role: Role, stage: Stage) -> int:
    """The rank beside it."""
    return int(_manager(worker, stage).dcp_rank)


def _manager(worker: InjectedWorker, stage: Stage) -> Any:
    """A decode worker's KV manager, made by its real constructor without a socket."""
    from sglang.srt.disaggregation.common import conn

    stage.patch(conn, "get_local_ip_auto", lambda *_: "127.0.0.1")
    stage.patch(conn, "get_zmq_socket_on_host", lambda *_, **__: (0, None))
    stage.patch(conn, "zmq", StandIn(name="zmq"))
    for name in ("get_attention_dp_size", "get_attention_dp_rank"):
        if hasattr(conn, name):  # another axis, from state that only a running engine has
            stage.patch(conn, name, lambda: 1)
    told = StandIn(
        name="KVArgs",
        kv_item_lens=[],
        state_item_lens=[],
        state_types=[],
        system_dp_rank=0,
        is_hybrid_mla_backend=False,
        mla_compression_ratios=[],
    )
    # 0.5.17 asks for the rank in the group where the seed says on, though live topology has no group.
    stage.live(dcp_rank=worker.attn_dcp_rank)
    decode = conn.DisaggregationMode.DECODE
    return _concrete(conn.CommonKVManager)(told, decode, stage.server_args, is_mla_backend=True)


def _concrete(base: Any) -> Any:
    """The manager without the methods that a transport has to add: none is called while it is made."""
    return type("Manager", (base,), dict.fromkeys(base.__abstractmethods__))
