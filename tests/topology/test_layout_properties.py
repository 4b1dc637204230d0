"""Layout formulas against tokens that are dealt, heads that are handed out and bytes that are spent, one by one."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, islice, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from topology_rules import rule

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

layouts = st.builds(
    lambda dcp, interleave, turns: KVLayout(
        dcp_size=dcp, page_size=interleave * turns, interleave=interleave
    ),
    st.integers(1, 9),
    st.integers(1, 6),
    st.integers(1, 6),
)


@dataclass
class Pools:
    """All logical pages of a layout, with their tokens dealt to the pools of the ranks from the first page on."""

    # by slot: the rank that was given the token, and the row that was next in its pool
    owners: list[int]
    rows: list[int]
    # by page: its slots, and the rows that it took in each pool
    slots: list[list[int]]
    taken: list[list[list[int]]]


def fill(layout: KVLayout, pages: int) -> Pools:
    pools = Pools([], [], [], [])
    used = [0] * layout.dcp_size
    for _ in range(pages):
        slots: list[int] = []
        taken: list[list[int]] = [[] for _ in used]
        while len(taken[0]) < layout.page_size:
            for rank, _ in product(range(layout.dcp_size), range(layout.interleave)):
                slots.append(len(pools.owners))
                taken[rank].append(used[rank])
                pools.owners.append(rank)
                pools.rows.append(used[rank])
                used[rank] += 1
        pools.slots.append(slots)
        pools.taken.append(taken)
    return pools


@rule
@given(layout=layouts, pages=st.integers(1, 4))
def test_owner_and_row_of_every_slot(layout: KVLayout, pages: int) -> None:
    pools = fill(layout, pages)
    assert [layout.owner(slot) for slot in range(len(pools.owners))] == pools.owners
    assert [layout.row(slot) for slot in range(len(pools.rows))] == pools.rows
    for page, taken in enumerate(pools.taken):
        assert taken == [list(layout.rows_of_page(page))] * layout.dcp_size


@rule
@given(layout=layouts, pages=st.permutations(range(3)), length=st.integers(0, 400))
def test_a_sequence_fills_its_pages_in_order(layout: KVLayout, pages: list[int], length: int) -> None:
    pools = fill(layout, len(pages))
    held = list(chain(*(pools.slots[page] for page in pages)))[:length]
    assert [layout.slot(pages, position) for position in range(len(held))] == held
    drawn, waiting = 0, list(held)
    while waiting:
        del waiting[: len(pools.slots[0])]
        drawn += 1
    assert layout.num_pages(len(held)) == drawn


@rule
@given(layout=layouts, ends=st.tuples(st.integers(0, 150), st.integers(0, 150)))
def test_positions_and_length_of_every_rank(layout: KVLayout, ends: tuple[int, int]) -> None:
    """The tokens of a sequence on pages in order: its positions are slots."""
    owners = fill(layout, 3).owners
    start, length = sorted(min(end, len(owners)) for end in ends)
    for rank in range(layout.dcp_size):
        mine = [position for position in range(length) if owners[position] == rank]
        assert layout.positions(length, rank) == mine
        assert layout.local_len(length, rank) == len(mine)
        late = [position for position in mine if position >= start]
        assert layout.positions(length, rank, start=start) == late
        assert layout.local_len(length, rank, start=start) == len(late)


@rule
@given(layout=layouts, pages=st.permutations(range(3)))
def test_rows_of_a_rank_follow_its_positions_page_by_page(layout: KVLayout, pages: list[int]) -> None:
    pools = fill(layout, len(pages))
    length = len(pools.owners)
    for rank in range(layout.dcp_size):
        rows = [layout.row(layout.slot(pages, position)) for position in layout.positions(length, rank)]
        assert rows == [row for page in pages for row in pools.taken[page][rank]]


@dataclass
class Heads:
    """The query heads that each rank and each DCP group computes, and the KV head that each of them reads."""

    of_rank: list[list[int]]
    of_group: list[list[int]]
    reads: list[int]


def hand_out(*, groups: int, dcp: int, share: int, sharing: int) -> Heads:
    """`share` heads to each rank, one rank after the other; `sharing` neighbouring heads read one KV head."""
    heads = iter(range(groups * dcp * share))
    of_group = [[list(islice(heads, share)) for _ in range(dcp)] for _ in range(groups)]
    readers = iter(range(groups * dcp * share))
    kv_heads = iter(range(groups * dcp * share))
    reads = [kv for kv in kv_heads for _ in islice(readers, sharing)]
    return Heads(
        [rank for group in of_group for rank in group], [list(chain(*group)) for group in of_group], reads
    )


@rule
@given(groups=st.integers(1, 8), dcp=st.integers(1, 8), share=st.integers(1, 6), data=st.data())
def test_a_rank_stores_the_kv_heads_that_its_groups_query_heads_read(
    groups: int, dcp: int, share: int, data: st.DataObject
) -> None:
    """Refused where a head's readers would be cut: neither has each head one group, nor each group one head."""
    total = len([None for _ in range(groups) for _ in range(dcp) for _ in range(share)])
    sharing = data.draw(st.sampled_from([n for n in range(1, total + 1) if total % n == 0]))
    heads = hand_out(groups=groups, dcp=dcp, share=share, sharing=sharing)
    sizes = {"tp_size": len(heads.of_rank), "dcp_size": dcp}
    stored = [sorted({heads.reads[head] for head in group}) for group in heads.of_group]
    kv_heads = sorted(set(heads.reads))
    whole = all(sum(kv in group for group in stored) == 1 for kv in kv_heads)
    for rank, own in enumerate(heads.of_rank):
        group = next(index for index, members in enumerate(heads.of_group) if own[0] in members)
        assert list(q_head_range(num_q_heads=total, tp_size=sizes["tp_size"], tp_rank=rank)) == own
        assert list(group_q_head_range(num_q_heads=total, **sizes, tp_rank=rank)) == heads.of_group[group]
        if whole or all(len(group) == 1 for group in stored):
            assert list(kv_head_range(num_kv_heads=len(kv_heads), **sizes, tp_rank=rank)) == stored[group]
        else:
            with pytest.raises(TopologyError, match="do not divide each other"):
                kv_head_range(num_kv_heads=len(kv_heads), **sizes, tp_rank=rank)


SMALL = st.integers(1, 5)


@rule
@given(layers=SMALL, heads=SMALL, values=SMALL, width=SMALL)
def test_a_row_is_every_byte_of_its_keys_and_values(layers: int, heads: int, values: int, width: int) -> None:
    stored = list(product("KV", range(layers), range(heads), range(values), range(width)))
    size = row_bytes(num_layers=layers, kv_heads_per_rank=heads, head_dim=values, dtype_bytes=width)
    assert size == len(stored)


@rule
@given(budget=st.integers(-10, 2000), width=st.integers(1, 20), page=st.integers(1, 16))
def test_a_budget_is_spent_page_by_page(budget: int, width: int, page: int) -> None:
    left, pages = budget, -1  # the first page is the reserved one
    while left >= len(b"." * width * page):
        left -= len(b"." * width * page)
        pages += 1
    if pages < 1:
        with pytest.raises(TopologyError, match=f"^a budget of {budget} B leaves no page of {page} rows"):
            rows_for_budget(budget_bytes=budget, row_bytes=width, page_size=page)
        return
    rows = rows_for_budget(budget_bytes=budget, row_bytes=width, page_size=page)
    assert rows == len([None for _ in range(pages) for _ in range(page)])


@rule
@given(layout=layouts, pages=st.integers(1, 8), input_len=st.integers(0, 500), left_over=st.integers(-2, 2))
def test_a_request_fits_while_a_page_stays_free_beside_it(
    layout: KVLayout, pages: int, input_len: int, left_over: int
) -> None:
    """Around the longest answer, which is the last that leaves a token of all pages unused."""
    page = fill(layout, 1)
    capacity = Capacity(rows_per_rank=pages * layout.page_size, dcp_size=layout.dcp_size)
    free = [slot for _ in range(pages) for slot in page.owners]
    assert capacity.max_total_num_tokens == len(free)
    room, waiting = len(free), list(range(input_len))
    while waiting:
        del waiting[: len(page.owners)]
        room -= len(page.owners)
    room -= len(page.owners)  # headroom
    answer = max(0, room + left_over)
    fits = request_fits(input_len=input_len, max_new_tokens=answer, layout=layout, capacity=capacity)
    assert fits == (answer < room)
