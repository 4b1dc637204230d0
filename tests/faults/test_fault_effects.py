"""What each fault does to a small engine's numbers: far past what parity allows, or nothing where it should hide.

No fault ends the engine.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from engine_driver import worst_gap

from harness.faults import FAULTS, Reach, get_fault
from harness.refengine.config import DcpCommBackend, EngineConfig

pytestmark = pytest.mark.usefixtures("healthy_afterwards")

AG_RS, A2A = DcpCommBackend.AG_RS, DcpCommBackend.A2A
HEALTHY = 2e-5
# The least of all, out-bf16, moves a log-probability by 7e-3; the bound of the parity suites is 1e-4.
VISIBLE = 5e-3

# On both sides of a shard of dcp 4 and 8, of a page and of a widened page.
LENGTHS = [*range(1, 10), 63, 64, 65]

# Engines of pairs and of Triton kernels have tests of their own.
ONE_ENGINE = [fault.id for fault in FAULTS.values() if fault.reach is Reach.ENGINE]

# Rows in other places, all numbers as they were.
ONLY_ROWS = {"owner-rotated", "owner-page", "free-partial"}
# Nothing to break where a chunk's prefix divides by dcp, or where each group has one KV head.
ALIGNED_HIDES = {"prefix-order"}
ONE_KV_HEAD_HIDES = {"kv-head-mod", "kv-head-tp"}
# Ranks that are threads stand in `inject()` from their first line: nothing is read before the live source is up.
NEVER_EARLY = {"ps-early"}
# Batches of one hide transposed LSEs; sequences that reach every rank leave no shard empty.
ALONE_HIDES = {"lse-stride"}
LONG_HIDES = {"empty-shard"}
# An interleave of a whole page is what these read or write anyway.
PAGES_HIDE = {"interleave-reader"}


def config(tp: int, dcp: int, **others: object) -> EngineConfig:
    return replace(EngineConfig(tp=tp, dcp=dcp), **others)


def judge(found: float, *, hidden: bool) -> None:
    """A visible fault stands out and gives numbers; a hidden one leaves all as it was."""
    if hidden:
        assert found <= HEALTHY
    else:
        assert VISIBLE <= found < torch.inf


@pytest.mark.parametrize("merge", [AG_RS, A2A])
@pytest.mark.parametrize(("tp", "dcp"), [(4, 4), (8, 8), (4, 2)])
def test_without_a_fault_nothing_moves(tp: int, dcp: int, merge: DcpCommBackend) -> None:
    assert worst_gap(config(tp, dcp, dcp_comm_backend=merge), LENGTHS) <= HEALTHY


@pytest.mark.parametrize(("tp", "dcp", "merge"), [(4, 4, AG_RS), (8, 8, A2A)])
@pytest.mark.parametrize("fault_id", ONE_ENGINE)
def test_a_fault_shows_in_a_batch_of_all_lengths(
    fault_id: str, tp: int, dcp: int, merge: DcpCommBackend
) -> None:
    get_fault(fault_id).install()
    found = worst_gap(config(tp, dcp, dcp_comm_backend=merge), LENGTHS)
    judge(found, hidden=fault_id in ONLY_ROWS | ALIGNED_HIDES | NEVER_EARLY)


@pytest.mark.parametrize("fault_id", ["merge-skipped", "head-order", "kv-head-mod", "kv-head-tp"])
def test_two_groups_in_one_tp_group(fault_id: str) -> None:
    """At tp 4, dcp 2 each group holds one of the two KV heads."""
    get_fault(fault_id).install()
    judge(worst_gap(config(4, 2), LENGTHS), hidden=fault_id in ONE_KV_HEAD_HIDES)


@pytest.mark.parametrize("length", [1, 65])
@pytest.mark.parametrize("fault_id", ONE_ENGINE)
def test_a_fault_shows_in_a_single_request(fault_id: str, length: int) -> None:
    get_fault(fault_id).install()
    everywhere = ONLY_ROWS | ALIGNED_HIDES | NEVER_EARLY | ALONE_HIDES
    hidden = fault_id in everywhere | (LONG_HIDES if length >= 4 else set())
    judge(worst_gap(config(4, 4), [length]), hidden=hidden)


@pytest.mark.parametrize("fault_id", ONE_ENGINE)
def test_chunks_and_stripes_that_align_with_nothing(fault_id: str) -> None:
    """Wrong rows and owners outside the group stay within the pool's pages."""
    get_fault(fault_id).install()
    odd = config(4, 4, page_size=4, interleave=4, chunked_prefill_size=6)
    judge(worst_gap(odd, LENGTHS), hidden=fault_id in ONLY_ROWS | PAGES_HIDE | NEVER_EARLY)


@pytest.mark.parametrize("fault_id", ONE_ENGINE)
def test_at_dcp_1_no_fault_ends_the_engine(fault_id: str) -> None:
    get_fault(fault_id).install()
    assert worst_gap(config(2, 1, chunked_prefill_size=8), [1, 9, 65]) < torch.inf


def test_all_faults_together_run() -> None:
    for fault in FAULTS.values():
        fault.install()
    assert VISIBLE <= worst_gap(config(4, 4), [1, 6, 65]) < torch.inf
