"""Bytes and capacity against filling.

Bytes are listed one by one, pages added until the budget is spent, tokens dealt until a rank has no row left.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import count, product

import pytest

from harness.topology import Capacity, KVLayout, kv_head_range, request_fits, row_bytes, rows_for_budget
from harness.topology.targets.layout import Function, LayoutTarget

GROUPS = [(tp, dcp) for tp in (1, 2, 4, 8) for dcp in (1, 2, 4, 8) if dcp <= tp]


def heads_of_rank(kv_heads: int, *, tp: int, dcp: int) -> int:
    return len(kv_head_range(num_kv_heads=kv_heads, tp_size=tp, dcp_size=dcp, tp_rank=tp - 1))


@pytest.mark.layout_functions(Function.ROW_BYTES)
@pytest.mark.parametrize(("layers", "heads", "dim", "size"), [(1, 1, 16, 4), (4, 2, 8, 2), (3, 8, 64, 1)])
def test_row_bytes_counts_every_byte(layers: int, heads: int, dim: int, size: int) -> None:
    every_byte = product("kv", range(layers), range(heads), range(dim), range(size))
    counted = sum(1 for _ in every_byte)
    found = row_bytes(num_layers=layers, kv_heads_per_rank=heads, head_dim=dim, dtype_bytes=size)
    assert found == counted


@pytest.mark.layout_functions(Function.ROWS_FOR_BUDGET)
@pytest.mark.parametrize("page", [1, 16, 64])
@pytest.mark.parametrize("row", [2, 96])
def test_rows_are_the_whole_pages_beside_the_reserved_one(row: int, page: int) -> None:
    a_page = sum(row for _ in range(page))
    for budget in (2 * a_page, 3 * a_page - 1, 3 * a_page, 3 * a_page + 1, 9 * a_page + row):
        pages, spent = [], 0
        for number in count():
            if spent + a_page > budget:
                break
            spent += a_page
            pages.append(number)
        usable = [row_ for number in pages if number != 0 for row_ in range(page)]
        assert rows_for_budget(budget_bytes=budget, row_bytes=row, page_size=page) == len(usable)


@pytest.mark.layout_functions(Function.CAPACITY)
@pytest.mark.parametrize("interleave", [1, 4, 16])
@pytest.mark.parametrize("dcp", [1, 2, 4, 8])
def test_capacity_is_what_can_be_dealt(dcp: int, interleave: int, layout_target: LayoutTarget) -> None:
    layout, pages = KVLayout(dcp_size=dcp, page_size=16, interleave=interleave), 3
    rows = layout.page_size * pages
    free_rows = [rows] * dcp
    dealt = 0
    for turn in count():
        if free_rows[turn % dcp] < interleave:
            break
        free_rows[turn % dcp] -= interleave
        dealt += interleave
    assert layout_target.capacity(layout, rows) == dealt


@pytest.mark.layout_functions(Function.ROW_BYTES, Function.ROWS_FOR_BUDGET)
@pytest.mark.parametrize(("tp", "dcp"), GROUPS)
def test_a_budget_holds_more_tokens_by_as_much_as_copies_vanish(tp: int, dcp: int) -> None:
    """dcp ranks share the tokens, but each stores the heads of its whole group: more copies, less gain."""

    def tokens_and_copies(kv_heads: int, dcp_size: int) -> tuple[int, Fraction]:
        heads = heads_of_rank(kv_heads, tp=tp, dcp=dcp_size)
        row = row_bytes(num_layers=2, kv_heads_per_rank=heads, head_dim=16, dtype_bytes=4)
        # what is left beside the reserved row can be divided by the rows of 1 to 8 heads
        rows = rows_for_budget(budget_bytes=row + 8 * 8 * 256 * 16, row_bytes=row, page_size=1)
        copies = Fraction(tp * heads, kv_heads * dcp_size)
        return Capacity(rows_per_rank=rows, dcp_size=dcp_size).max_total_num_tokens, copies

    for kv_heads in (1, 2, 4, 8):
        tokens_alone, copies_alone = tokens_and_copies(kv_heads, 1)
        tokens, copies = tokens_and_copies(kv_heads, dcp)
        assert Fraction(tokens, tokens_alone) == copies_alone / copies, kv_heads


@pytest.mark.layout_functions(Function.REQUEST_FITS)
@pytest.mark.parametrize("dcp", [1, 2, 4, 8])
@pytest.mark.parametrize("page", [1, 16, 64])
def test_a_request_fits_while_its_pages_and_headroom_stay_below_the_cap(page: int, dcp: int) -> None:
    layout = KVLayout(dcp_size=dcp, page_size=page)
    capacity = Capacity(rows_per_rank=5 * page, dcp_size=dcp)
    tokens = [token for _ in range(5 * page) for token in range(dcp)]
    for input_len in {0, 1, page * dcp - 1, page * dcp, page * dcp + 1, 3 * page * dcp + 1}:
        left = list(tokens)
        waiting = input_len
        while waiting > 0:  # whole pages for the input
            del left[: page * dcp]
            waiting -= page * dcp
        del left[: page * dcp]  # headroom
        longest = len(left) - 1
        for new in {0, 1, *range(max(longest - 1, 0), longest + 2), longest + page + 1}:
            fits = request_fits(input_len=input_len, max_new_tokens=new, layout=layout, capacity=capacity)
            assert fits == (new < len(left)), (input_len, new)


@pytest.mark.layout_functions(Function.REQUEST_CAP)
@pytest.mark.parametrize("dcp", [1, 2, 4, 8])
@pytest.mark.parametrize("page", [1, 16, 64])
def test_a_request_is_capped_to_what_fits(page: int, dcp: int, layout_target: LayoutTarget) -> None:
    """Whole pages for the input and one of headroom; a target says which page it counts in. Whatever it admits
    must be there, in the pages that an allocator really draws."""
    layout, pages = KVLayout(dcp_size=dcp, page_size=page), 5
    admission_page = layout_target.admission_page(layout)
    tokens = [token for _ in range(pages * page) for token in range(dcp)]
    for input_len in sorted({1, page * dcp - 1, page * dcp, page * dcp + 1, 3 * page * dcp + 1} - {0}):
        left = list(tokens)
        waiting = input_len
        while waiting > 0:
            del left[:admission_page]
            waiting -= admission_page
        del left[:admission_page]
        longest = max(len(left) - 1, 0)
        for asked in {1, *range(max(longest - 1, 0), longest + 2), longest + page + 1}:
            sizes = {"input_len": input_len, "asked": asked, "rows_per_rank": pages * page}
            new = layout_target.admitted(layout, **sizes)
            assert new == min(asked, longest), sizes
            assert new == 0 or layout_target.num_pages(layout, input_len + new) <= pages, sizes
