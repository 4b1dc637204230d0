"""Topology: what the numbers of a parallel engine mean, and being any rank of one without hardware.

Arithmetic and plain values only: importing this room imports neither torch nor pytest (the pytest marker is
`harness.topology.marker`, imported by who needs it).
"""

from harness.topology.config import ParallelConfig
from harness.topology.groups import dcp_groups, group_of, tp_groups
from harness.topology.layout import (
    Capacity,
    KVLayout,
    group_q_head_range,
    kv_head_range,
    q_head_range,
    request_fits,
    row_bytes,
    rows_for_budget,
)
from harness.topology.live import LiveParallel, get_parallel, install_parallel, uninstall_parallel
from harness.topology.shim import InjectedGroup, InjectedWorker, inject
from harness.topology.state import ParallelState

__all__ = [
    "Capacity",
    "InjectedGroup",
    "InjectedWorker",
    "KVLayout",
    "LiveParallel",
    "ParallelConfig",
    "ParallelState",
    "dcp_groups",
    "get_parallel",
    "group_of",
    "group_q_head_range",
    "inject",
    "install_parallel",
    "kv_head_range",
    "q_head_range",
    "request_fits",
    "row_bytes",
    "rows_for_budget",
    "tp_groups",
    "uninstall_parallel",
]
