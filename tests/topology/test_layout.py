"""What suite `dcp/layout_unit` and the properties leave out: refusals, in which words, and tensors."""

from __future__ import annotations

import pytest
import torch

from harness.errors import TopologyError
from harness.topology import (
    Capacity,
    KVLayout,
    group_q_head_range,
    kv_head_range,
    q_head_range,
    request_fits,
    row_bytes,
    rows_for_budget,
)


def test_owner_and_row_take_tensors() -> None:
    layout = KVLayout(dcp_size=4, page_size=16, interleave=4)
    slots = torch.arange(200).reshape(2, 100)
    assert layout.owner(slots).flatten().tolist() == [layout.owner(slot) for slot in range(200)]
    assert layout.row(slots).flatten().tolist() == [layout.row(slot) for slot in range(200)]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"dcp_size": 0, "page_size": 1}, "dcp_size is 0"),
        ({"dcp_size": 1, "page_size": 0}, "page_size is 0"),
        ({"dcp_size": 1, "page_size": 1, "interleave": 0}, "interleave is 0"),
        ({"dcp_size": 2, "page_size": 6, "interleave": 4}, "page_size 6 is not divisible by interleave 4"),
    ],
)
def test_layouts_that_cannot_be_are_refused(sizes: dict, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        KVLayout(**sizes)


def test_questions_outside_a_sequence_are_refused() -> None:
    layout = KVLayout(dcp_size=2, page_size=4)
    with pytest.raises(TopologyError, match=r"rank is 2, but the DCP group has ranks 0\.\.1"):
        layout.local_len(5, 2)
    with pytest.raises(TopologyError, match=r"rank is -1"):
        layout.positions(5, -1)
    with pytest.raises(TopologyError, match=r"positions 6\.\.5"):
        layout.positions(5, 0, start=6)
    with pytest.raises(TopologyError, match=r"positions 0\.\.-1"):
        layout.num_pages(-1)
    with pytest.raises(TopologyError, match="page is -1"):
        layout.rows_of_page(-1)
    for position in (-1, 16):
        with pytest.raises(TopologyError, match=f"position {position} lies outside the 16 tokens of 2 pages"):
            layout.slot([3, 1], position)
    with pytest.raises(TopologyError, match="page is -3"):
        layout.slot([-3, 1], 0)
    assert layout.slot([3, 1], 15) == 15
    assert [layout.num_pages(length) for length in (0, 1, 8, 9, 17)] == [0, 1, 1, 2, 3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"num_kv_heads": 3, "tp_size": 4, "dcp_size": 2, "tp_rank": 0},
            "num_kv_heads 3 and the 2 head groups",
        ),
        (
            {"num_kv_heads": 2, "tp_size": 6, "dcp_size": 2, "tp_rank": 0},
            "num_kv_heads 2 and the 3 head groups",
        ),
        (
            {"num_kv_heads": 2, "tp_size": 4, "dcp_size": 3, "tp_rank": 0},
            "tp_size 4 is not divisible by dcp_size 3",
        ),
        ({"num_kv_heads": 2, "tp_size": 4, "dcp_size": 2, "tp_rank": 4}, "tp_rank is 4"),
        ({"num_kv_heads": 0, "tp_size": 4, "dcp_size": 2, "tp_rank": 0}, "num_kv_heads is 0"),
    ],
)
def test_heads_that_cannot_be_laid_out_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        kv_head_range(**arguments)


def test_kv_heads_may_be_no_power_of_two() -> None:
    ranges = [kv_head_range(num_kv_heads=3, tp_size=12, dcp_size=2, tp_rank=rank) for rank in range(12)]
    assert [list(heads) for heads in ranges] == [[0]] * 4 + [[1]] * 4 + [[2]] * 4
    ranges = [kv_head_range(num_kv_heads=6, tp_size=4, dcp_size=2, tp_rank=rank) for rank in range(4)]
    assert [list(heads) for heads in ranges] == [[0, 1, 2]] * 2 + [[3, 4, 5]] * 2


def test_a_group_computes_the_query_heads_of_its_ranks() -> None:
    for rank in range(8):
        group = range(rank - rank % 4, rank - rank % 4 + 4)
        own = [list(q_head_range(num_q_heads=24, tp_size=8, tp_rank=other)) for other in group]
        gathered = group_q_head_range(num_q_heads=24, tp_size=8, dcp_size=4, tp_rank=rank)
        assert list(gathered) == [head for heads in own for head in heads]
        assert len(gathered) == 12


def test_query_heads_must_divide() -> None:
    with pytest.raises(TopologyError, match="num_q_heads 6 is not divisible by tp_size 4"):
        q_head_range(num_q_heads=6, tp_size=4, tp_rank=0)
    with pytest.raises(TopologyError, match="num_q_heads is 0"):
        group_q_head_range(num_q_heads=0, tp_size=4, dcp_size=2, tp_rank=0)


def test_a_budget_needs_a_page_beside_the_reserved_one() -> None:
    assert rows_for_budget(budget_bytes=2048, row_bytes=64, page_size=16) == 16
    with pytest.raises(
        TopologyError, match=r"a budget of 2047 B leaves no page .* at least 2048 B are needed"
    ):
        rows_for_budget(budget_bytes=2047, row_bytes=64, page_size=16)
    # K and V of 2 layers, 3 heads of 5 values of 2 bytes
    assert row_bytes(num_layers=2, kv_heads_per_rank=3, head_dim=5, dtype_bytes=2) == 120
    with pytest.raises(TopologyError, match="head_dim is 0"):
        row_bytes(num_layers=1, kv_heads_per_rank=1, head_dim=0, dtype_bytes=4)
    with pytest.raises(TopologyError, match="rows_per_rank is 0"):
        Capacity(rows_per_rank=0, dcp_size=1)


def test_a_request_fits_below_the_aggregate_cap() -> None:
    layout = KVLayout(dcp_size=4, page_size=16)
    capacity = Capacity(rows_per_rank=80, dcp_size=4)
    assert capacity.max_total_num_tokens == 320
    for input_len, longest in [(1, 191), (64, 191), (65, 127), (192, 63)]:
        for new, fits in [(longest, True), (longest + 1, False)]:
            asked = {"input_len": input_len, "max_new_tokens": new}
            assert request_fits(layout=layout, capacity=capacity, **asked) is fits, asked


def test_budgets_and_answers_that_cannot_be_are_refused() -> None:
    with pytest.raises(TopologyError, match=r"budget_bytes is 1000000000.0, but must be an integer"):
        rows_for_budget(budget_bytes=1e9, row_bytes=64, page_size=16)
    layout, capacity = KVLayout(dcp_size=1, page_size=16), Capacity(rows_per_rank=16, dcp_size=1)
    with pytest.raises(TopologyError, match="max_new_tokens is -99, but must be at least 0"):
        request_fits(input_len=1, max_new_tokens=-99, layout=layout, capacity=capacity)


def test_fitting_takes_layout_and_capacity_of_one_group() -> None:
    layout = KVLayout(dcp_size=4, page_size=16)
    with pytest.raises(TopologyError, match="layout has dcp_size 4, but capacity has 2"):
        request_fits(
            input_len=1, max_new_tokens=1, layout=layout, capacity=Capacity(rows_per_rank=64, dcp_size=2)
        )
