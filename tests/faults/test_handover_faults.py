"""What each fault of a handover does to rows and numbers of the decode side. None keeps a handover from ending."""

from __future__ import annotations

import pytest
import torch
from handover_driver import Landed, hand_over, rows_by_hand
from pd_pairs import Pair

from harness.faults import FAULTS, Reach, get_fault

pytestmark = pytest.mark.usefixtures("healthy_afterwards")

HEALTHY = 2e-5
# The least of all, a shift in prompts of many tokens, moves a log-probability by far more.
VISIBLE = 5e-3

# On both sides of a shard, a chunk of 24, a page and a widened page of dcp 4.
LENGTHS = [1, 2, 3, 4, 5, 23, 24, 25, 63, 64, 65]
OF_PAIRS = [fault.id for fault in FAULTS.values() if fault.reach is Reach.PAIR]
# Every token arrives, at a rank that does not own it: attention does not care.
ONLY_ROWS = {"pd-swap", "pd-contiguous"}

DEALT = Pair(prefill={"tp": 2}, decode={"tp": 4, "dcp": 4}, shows="tokens are dealt out")
TWO = Pair(prefill={"tp": 2}, decode={"tp": 4, "dcp": 2}, shows="no DCP rank 2")
STAYING = Pair(prefill={"tp": 2, "dcp": 2}, decode={"tp": 4, "dcp": 2}, shows="tokens stay")
PLAIN = Pair(prefill={"tp": 2}, decode={"tp": 1}, shows="no DCP")


def landed(pair: Pair, lengths: list[int]) -> tuple[Landed, bool]:
    """What arrived, and whether it is what should have."""
    prefill, decode = pair.configs(chunked_prefill_size=24)
    found = hand_over(prefill, decode, lengths)
    return found, found.rows == rows_by_hand(decode, found.requests, lengths)


@pytest.mark.parametrize("fault_id", OF_PAIRS)
def test_rows_show_every_fault_and_numbers_those_that_lose_tokens(fault_id: str) -> None:
    get_fault(fault_id).install()
    found, rows_right = landed(DEALT, LENGTHS)
    assert not rows_right
    if fault_id in ONLY_ROWS:
        assert found.gap <= HEALTHY
    else:
        assert VISIBLE <= found.gap < torch.inf


@pytest.mark.parametrize("pair", [TWO, STAYING, PLAIN], ids=lambda pair: pair.id)
@pytest.mark.parametrize("fault_id", OF_PAIRS)
def test_what_deals_to_nobody_else_hides(fault_id: str, pair: Pair) -> None:
    hides = {"pd-swap": (TWO, STAYING, PLAIN), "pd-contiguous": (STAYING, PLAIN)}
    get_fault(fault_id).install()
    found, rows_right = landed(pair, LENGTHS)
    assert rows_right == (pair in hides.get(fault_id, ()))
    assert (found.gap <= HEALTHY) == (fault_id in ONLY_ROWS)


@pytest.mark.parametrize("length", [1, 65])
@pytest.mark.parametrize("fault_id", ["pd-lost-page", "pd-shift"])
def test_lost_tokens_show_in_a_single_request(fault_id: str, length: int) -> None:
    get_fault(fault_id).install()
    found, rows_right = landed(DEALT, [length])
    assert not rows_right and VISIBLE <= found.gap < torch.inf
