"""The dealing oracle against the formula of `topology`, and its verdict on planted row faults."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.checks.ownership import deal_page, expected_rows, places_of, rank_faults
from harness.engines.base import HeldRow, InFlight, KVRows
from harness.topology import KVLayout


@st.composite
def layouts(draw: st.DrawFn) -> KVLayout:
    interleave = draw(st.sampled_from([1, 2, 4]))
    page_size = interleave * draw(st.integers(1, 6))
    return KVLayout(
        dcp_size=draw(st.sampled_from([1, 2, 3, 4, 8])), page_size=page_size, interleave=interleave
    )


@given(layout=layouts(), page=st.integers(1, 50))
def test_dealing_agrees_with_the_formula(layout: KVLayout, page: int) -> None:
    first = page * layout.widened_page_size
    by_formula = [
        (layout.owner(slot), layout.row(slot)) for slot in range(first, first + layout.widened_page_size)
    ]
    dealt = deal_page(
        page, page_size=layout.page_size, dcp_size=layout.dcp_size, interleave=layout.interleave
    )
    assert dealt == by_formula


def pools_of(request: InFlight) -> KVRows:
    return KVRows(page_size=4, dcp_size=2, interleave=2, requests=(request,), ranks=())


REQUEST = InFlight(rid="a", index=7, tokens=tuple(range(100, 113)), kv_len=11, pages=(3, 1))


def test_tokens_beyond_kv_len_have_no_place() -> None:
    places = dict(places_of(REQUEST, pools_of(REQUEST)))
    assert sorted(places) == list(range(11))
    assert places[0] == (0, 12)
    assert places[2] == (1, 12)
    assert places[8] == (0, 4)


@pytest.mark.parametrize("damage", ["lost", "moved", "other-token", "foreign"])
def test_every_kind_of_damage_is_told_with_its_row(damage: str) -> None:
    expected = expected_rows(pools_of(REQUEST))[0]
    held = dict(expected)
    assert rank_faults(tp_rank=0, held=held.values(), expected=expected) == []
    row = min(held)
    if damage == "lost":
        del held[row]
    elif damage == "moved":
        moved = held.pop(row)
        held[99] = replace(moved, row=99)
    elif damage == "other-token":
        held[row] = replace(held[row], token=-5)
    else:
        held[98] = HeldRow(row=98, index=1, position=0, token=0)
    faults = rank_faults(tp_rank=0, held=held.values(), expected=expected)
    assert {found for found, _ in faults} <= {row, 98, 99}
    assert all(f"row {found} " in sentence for found, sentence in faults)
    assert faults
