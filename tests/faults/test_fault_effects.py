"""Each fault moves log-probabilities far past what parity allows, and none of them ends the engine."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from engine_driver import worst_gap

from harness.faults import FAULTS, get_fault
from harness.refengine.config import DcpCommBackend, EngineConfig
from harness.refengine.layout_seams import local_kv_len, token_owner
from harness.topology import KVLayout

pytestmark = pytest.mark.usefixtures("healthy_afterwards")

HEALTHY = 2e-5
VISIBLE = 1e-2

LENGTHS = [*range(1, 10), 63, 64, 65]

SHARDED = [(4, 4), (8, 8), (4, 2)]


def config(tp: int, dcp: int, **others: object) -> EngineConfig:
    return replace(EngineConfig(tp=tp, dcp=dcp), **others)


@pytest.mark.parametrize("merge", list(DcpCommBackend))
@pytest.mark.parametrize(("tp", "dcp"), SHARDED)
def test_without_a_fault_nothing_moves(tp: int, dcp: int, merge: DcpCommBackend) -> None:
    assert worst_gap(config(tp, dcp, dcp_comm_backend=merge), LENGTHS) <= HEALTHY


@pytest.mark.parametrize("merge", list(DcpCommBackend))
@pytest.mark.parametrize(("tp", "dcp"), SHARDED)
@pytest.mark.parametrize("fault_id", FAULTS)
def test_every_fault_shows(fault_id: str, tp: int, dcp: int, merge: DcpCommBackend) -> None:
    get_fault(fault_id).install()
    found = worst_gap(config(tp, dcp, dcp_comm_backend=merge), LENGTHS)
    assert VISIBLE <= found < torch.inf


@pytest.mark.parametrize("length", [1, 5, 64, 65])
@pytest.mark.parametrize("fault_id", FAULTS)
def test_every_fault_shows_in_a_single_request(fault_id: str, length: int) -> None:
    get_fault(fault_id).install()
    assert VISIBLE <= worst_gap(config(4, 4), [length]) < torch.inf


@pytest.mark.parametrize("fault_id", FAULTS)
def test_chunked_prefill_and_interleave_do_not_crash_a_fault(fault_id: str) -> None:
    """Wrong rows and owners outside the group stay within the pool's pages."""
    get_fault(fault_id).install()
    odd = config(4, 4, page_size=4, interleave=4, chunked_prefill_size=6)
    assert VISIBLE <= worst_gap(odd, LENGTHS) < torch.inf


@pytest.mark.parametrize("fault_id", ["lse-base", "len-ceil"])
def test_at_dcp_1_a_fault_of_sharding_has_nothing_to_break(fault_id: str) -> None:
    get_fault(fault_id).install()
    assert worst_gap(config(2, 1), LENGTHS) <= HEALTHY


def test_at_dcp_1_owner_div_runs() -> None:
    """p // 1 is an owner outside the group for every position but the first: wrong, but no crash."""
    get_fault("owner-div").install()
    assert worst_gap(config(2, 1, chunked_prefill_size=8), LENGTHS) < torch.inf


def test_all_faults_together_run() -> None:
    for fault in FAULTS.values():
        fault.install()
    assert VISIBLE <= worst_gap(config(4, 4), [1, 6, 65]) < torch.inf


def test_len_ceil_gives_every_rank_what_the_first_holds() -> None:
    layout, lengths = KVLayout(dcp_size=4, page_size=4), torch.tensor([1, 4, 6, 8])
    assert local_kv_len(layout, lengths, 3).tolist() == [0, 1, 1, 2]
    get_fault("len-ceil").install()
    assert [local_kv_len(layout, lengths, rank).tolist() for rank in (0, 3)] == [[1, 1, 2, 2]] * 2


def test_owner_div_gives_blocks_and_leaves_the_group() -> None:
    layout, positions = KVLayout(dcp_size=2, page_size=4), torch.arange(6)
    assert token_owner(layout, positions).tolist() == [0, 1, 0, 1, 0, 1]
    get_fault("owner-div").install()
    assert token_owner(layout, positions).tolist() == [0, 0, 1, 1, 2, 2]
