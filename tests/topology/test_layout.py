"""What suite `dcp/layout_unit` and the properties leave out: refusals, in which words, and tensors."""

from __future__ import annotations

from collections.abc import Callable

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


def refusal(call: Callable[..., object], *values: object, **named: object) -> str:
    with pytest.raises(TopologyError) as caught:
        call(*values, **named)
    return str(caught.value)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"dcp_size": 0, "page_size": 1}, "dcp_size is 0, but must be an integer of at least 1"),
        ({"dcp_size": 1, "page_size": 0}, "page_size is 0, but must be an integer of at least 1"),
        (
            {"dcp_size": 1, "page_size": 1, "interleave": 0},
            "interleave is 0, but must be an integer of at least 1",
        ),
        (
            {"dcp_size": 2, "page_size": 6, "interleave": 4},
            "page_size 6 is not divisible by interleave 4: every page must start with the first rank's turn",
        ),
    ],
)
def test_layouts_that_cannot_be_are_refused(sizes: dict, message: str) -> None:
    assert refusal(KVLayout, **sizes) == message


def test_questions_outside_a_sequence_are_refused() -> None:
    layout = KVLayout(dcp_size=2, page_size=4)
    for ask in (layout.local_len, layout.positions):
        for rank in (-1, 2):
            assert refusal(ask, 5, rank) == f"rank is {rank}, but the DCP group has ranks 0..1"
        for start in (-1, 6):
            told = f"positions {start}..5 are no stretch of a sequence: 0 <= start <= length"
            assert refusal(ask, 5, 0, start=start) == told
    assert refusal(layout.num_pages, -1) == (
        "positions 0..-1 are no stretch of a sequence: 0 <= start <= length"
    )
    assert refusal(layout.rows_of_page, -1) == "page is -1, but pages count from 0"
    for position in (-1, 16):
        told = f"position {position} lies outside the 16 tokens of 2 pages"
        assert refusal(layout.slot, [3, 1], position) == told
    assert refusal(layout.slot, [-3, 1], 0) == "page is -3, but pages count from 0"
    assert layout.slot([3, 1], 15) == 15
    assert layout.slot([0], 7) == 7
    assert [layout.num_pages(length) for length in (0, 1, 8, 9, 17)] == [0, 1, 1, 2, 3]


UNEQUAL = "do not divide each other: a group holds whole heads, or a head is copied to whole groups"
SLICES = "DCP groups are contiguous slices of equal size of each TP group"


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((3, 4, 2, 0), f"num_kv_heads 3 and the 2 head groups of tp_size 4 / dcp_size 2 {UNEQUAL}"),
        ((2, 6, 2, 0), f"num_kv_heads 2 and the 3 head groups of tp_size 6 / dcp_size 2 {UNEQUAL}"),
        ((2, 4, 3, 0), f"tp_size 4 is not divisible by dcp_size 3: {SLICES}"),
        ((2, 4, 2, 4), "tp_rank is 4, but must be in 0..3"),
        ((2, 4, 2, -1), "tp_rank is -1, but must be in 0..3"),
        ((0, 4, 2, 0), "num_kv_heads is 0, but must be an integer of at least 1"),
        ((2, -4, 2, 0), "tp_size is -4, but must be an integer of at least 1"),
        ((2, 4, -2, 0), "dcp_size is -2, but must be an integer of at least 1"),
    ],
)
def test_heads_that_cannot_be_laid_out_are_refused(sizes: tuple[int, ...], message: str) -> None:
    names = ("num_kv_heads", "tp_size", "dcp_size", "tp_rank")
    assert refusal(kv_head_range, **dict(zip(names, sizes, strict=True))) == message


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
    assert refusal(q_head_range, num_q_heads=6, tp_size=4, tp_rank=0) == (
        "num_q_heads 6 is not divisible by tp_size 4: every rank computes as many query heads"
    )
    assert refusal(group_q_head_range, num_q_heads=0, tp_size=4, dcp_size=2, tp_rank=0) == (
        "num_q_heads is 0, but must be an integer of at least 1"
    )


def test_a_budget_needs_a_page_beside_the_reserved_one() -> None:
    assert rows_for_budget(budget_bytes=2048, row_bytes=64, page_size=16) == 16
    assert refusal(rows_for_budget, budget_bytes=2047, row_bytes=64, page_size=16) == (
        "a budget of 2047 B leaves no page of 16 rows * 64 B beside the reserved page 0: at least 2048 B are needed"
    )
    # K and V of 2 layers, 3 heads of 5 values of 2 bytes
    assert row_bytes(num_layers=2, kv_heads_per_rank=3, head_dim=5, dtype_bytes=2) == 120
    for sizes in ({"rows_per_rank": -8, "dcp_size": 1}, {"rows_per_rank": 8, "dcp_size": -1}):
        name, value = min(sizes.items(), key=lambda size: size[1])
        assert refusal(Capacity, **sizes) == f"{name} is {value}, but must be an integer of at least 1"


def test_a_request_fits_below_the_aggregate_cap() -> None:
    layout = KVLayout(dcp_size=4, page_size=16)
    capacity = Capacity(rows_per_rank=80, dcp_size=4)
    assert capacity.max_total_num_tokens == 320
    for input_len, longest in [(1, 191), (64, 191), (65, 127), (192, 63)]:
        for new, fits in [(longest, True), (longest + 1, False)]:
            asked = {"input_len": input_len, "max_new_tokens": new}
            assert request_fits(layout=layout, capacity=capacity, **asked) is fits, asked


ROW = {"num_layers": 1, "kv_heads_per_rank": 1, "head_dim": 1, "dtype_bytes": 1}
BUDGET = {"budget_bytes": 100, "row_bytes": 1, "page_size": 1}


@pytest.mark.parametrize(
    ("call", "sizes", "name"),
    [(row_bytes, ROW, name) for name in ROW]
    + [(rows_for_budget, BUDGET, name) for name in ("row_bytes", "page_size")],
)
def test_each_size_of_a_row_and_of_a_page_is_at_least_one(
    call: Callable[..., int], sizes: dict[str, int], name: str
) -> None:
    assert refusal(call, **sizes | {name: -1}) == f"{name} is -1, but must be an integer of at least 1"


def test_budgets_and_answers_that_cannot_be_are_refused() -> None:
    assert refusal(rows_for_budget, budget_bytes=1e9, row_bytes=64, page_size=16) == (
        "budget_bytes is 1000000000.0, but must be an integer"
    )
    layout, capacity = KVLayout(dcp_size=1, page_size=16), Capacity(rows_per_rank=64, dcp_size=1)
    asked = {"input_len": 1, "layout": layout, "capacity": capacity}
    assert refusal(request_fits, max_new_tokens=-1, **asked) == (
        "max_new_tokens is -1, but must be at least 0"
    )
    assert request_fits(max_new_tokens=0, **asked)


def test_fitting_takes_layout_and_capacity_of_one_group() -> None:
    layout, capacity = KVLayout(dcp_size=4, page_size=16), Capacity(rows_per_rank=64, dcp_size=2)
    told = refusal(request_fits, input_len=1, max_new_tokens=1, layout=layout, capacity=capacity)
    assert told == "layout has dcp_size 4, but capacity has 2"
