"""Topology: what the numbers of a parallel engine mean, and being any rank of one without hardware.

Arithmetic and plain values only: importing this room imports neither torch nor pytest (the pytest marker is
`harness.topology.marker`, imported by who needs it).
"""

from harness.topology.config import ParallelConfig
from harness.topology.groups import (
    Axis,
    all_groups,
    check_groups,
    dcp_groups,
    group_of,
    group_table,
    tp_groups,
)
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
from harness.topology.mock_workers import MockServerArgs, MockWorker, mock_worker
from harness.topology.platforms import Platform, require_platform
from harness.topology.reads import EarlyRead, Phase, Read, early_reads, record_reads
from harness.topology.shim import InjectedGroup, InjectedWorker, inject
from harness.topology.side import Side
from harness.topology.sources import Divergence, Role, compare_states, verify_sources
from harness.topology.state import ParallelState
from harness.topology.step_lens import Step, StepBuffers, StepLens, step_lens

__all__ = [
    "Axis",
    "Capacity",
    "Divergence",
    "EarlyRead",
    "InjectedGroup",
    "InjectedWorker",
    "KVLayout",
    "LiveParallel",
    "MockServerArgs",
    "MockWorker",
    "ParallelConfig",
    "ParallelState",
    "Phase",
    "Platform",
    "Read",
    "Role",
    "Side",
    "Step",
    "StepBuffers",
    "StepLens",
    "all_groups",
    "check_groups",
    "compare_states",
    "dcp_groups",
    "early_reads",
    "get_parallel",
    "group_of",
    "group_q_head_range",
    "group_table",
    "inject",
    "install_parallel",
    "kv_head_range",
    "mock_worker",
    "q_head_range",
    "record_reads",
    "request_fits",
    "require_platform",
    "row_bytes",
    "rows_for_budget",
    "step_lens",
    "tp_groups",
    "uninstall_parallel",
    "verify_sources",
]
