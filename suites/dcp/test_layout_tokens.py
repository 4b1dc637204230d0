"""Token layout against a deal of cards: every rank, row, length and page is counted out, none is computed.

The oracle deals the tokens of a sequence to the ranks in turn, `interleave` at a time. Each rank fills its
own rows one by one; when no rank has a free row on the current page, the next logical page is drawn. Nothing
in it divides by a number of ranks.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice, pairwise

import pytest

from harness.errors import TopologyError
from harness.topology import KVLayout, ParallelConfig, ParallelState

GROUPS = [(tp, dcp) for tp in (1, 2, 4, 8) for dcp in (1, 2, 4, 8) if dcp <= tp]
PAGES = [(interleave, page) for interleave in (1, 4, 16) for page in (1, 16, 64) if page >= interleave]
LAYOUTS = [KVLayout(dcp_size=d, page_size=p, interleave=i) for d in (1, 2, 4, 8) for i, p in PAGES]


def layout_id(layout: KVLayout) -> str:
    return f"dcp{layout.dcp_size}-page{layout.page_size}-interleave{layout.interleave}"


each_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=layout_id)


@dataclass
class Dealer:
    """Deals one sequence; page `n` of each rank has the rows that follow those of page `n - 1`."""

    layout: KVLayout
    free_pages: list[int]
    pages: list[int] = field(default_factory=list)
    # per position: owner and row, as dealt
    owners: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    # per position: logical page and the token's number on it
    places: list[tuple[int, int]] = field(default_factory=list)
    _free_rows: list[list[int]] = field(default_factory=list)
    _on_page: int = 0

    def deal(self, count: int) -> Dealer:
        for rank in islice(turns(self.layout), count):
            if not any(self._free_rows):
                self._draw_page()
            self.owners.append(rank)
            self.rows.append(self._free_rows[rank].pop(0))
            self.places.append((self.pages[-1], self._on_page))
            self._on_page += 1
        return self

    def _draw_page(self) -> None:
        page = self.free_pages.pop()
        rows = [row for number in range(page + 1) for row in [number] * self.layout.page_size]
        mine = [index for index, number in enumerate(rows) if number == page]
        self.pages.append(page)
        self._on_page = 0
        self._free_rows = [list(mine) for _ in range(self.layout.dcp_size)]

    def hand(self, rank: int, *, start: int, length: int) -> list[int]:
        return [p for p in range(start, length) if self.owners[p] == rank]


def turns(layout: KVLayout) -> Iterator[int]:
    """The rank whose turn it is, for one token after the other."""
    while True:
        for rank in range(layout.dcp_size):
            for _ in range(layout.interleave):
                yield rank


def number_slots(layout: KVLayout, pages: int) -> dict[tuple[int, int], int]:
    """Slots as an allocator numbers them: through all pages, each as long as all ranks' rows together."""
    tokens = [token for _ in range(layout.dcp_size) for token in range(layout.page_size)]
    places = [(page, index) for page in range(pages) for index in range(len(tokens))]
    return {place: slot for slot, place in enumerate(places)}


def shuffled_pages(layout: KVLayout, count: int) -> list[int]:
    """Pages 1 .. count in an order that differs per layout but not per run; page 0 is reserved."""
    pages = list(range(1, count + 1))
    random.Random(layout_id(layout)).shuffle(pages)
    return pages


def ragged_lengths(layout: KVLayout) -> list[int]:
    """Around a turn, a round, a page and two pages."""
    edges = (layout.interleave, layout.interleave * layout.dcp_size, layout.page_size * layout.dcp_size)
    around = {edge + step for edge in (*edges, 2 * edges[-1]) for step in (-1, 0, 1)}
    return sorted(around | {0, 1, 3, 2 * edges[-1] + edges[0] + 1})


@each_layout
def test_owner_and_row_are_as_dealt(layout: KVLayout) -> None:
    length = ragged_lengths(layout)[-1]
    dealer = Dealer(layout, shuffled_pages(layout, 5)).deal(length)
    numbers = number_slots(layout, 6)
    slots = [layout.slot(dealer.pages, position) for position in range(length)]
    assert slots == [numbers[place] for place in dealer.places]
    assert [layout.owner(position) for position in range(length)] == dealer.owners
    assert [layout.owner(slot) for slot in slots] == dealer.owners
    assert [layout.row(slot) for slot in slots] == dealer.rows


@each_layout
def test_lengths_and_positions_are_as_dealt(layout: KVLayout) -> None:
    lengths = ragged_lengths(layout)
    dealer = Dealer(layout, shuffled_pages(layout, 5)).deal(lengths[-1])
    stretches = [(0, length) for length in lengths] + list(pairwise(lengths)) + [(3, lengths[-1])]
    for rank in range(layout.dcp_size):
        for start, length in stretches:
            hand = dealer.hand(rank, start=start, length=length)
            assert layout.positions(length, rank, start=start) == hand, (rank, start, length)
            assert layout.local_len(length, rank, start=start) == len(hand), (rank, start, length)


@each_layout
def test_page_counts_are_as_drawn(layout: KVLayout) -> None:
    for length in ragged_lengths(layout):
        dealer = Dealer(layout, shuffled_pages(layout, 5)).deal(length)
        assert layout.num_pages(length) == len(dealer.pages), length


@each_layout
def test_a_full_pool_uses_every_row_of_every_rank_once(layout: KVLayout) -> None:
    pages = 3
    uses: Counter[tuple[int, int]] = Counter()
    for page in shuffled_pages(layout, pages):
        slots = [layout.slot([page], position) for position in range(layout.widened_page_size)]
        places = [(layout.owner(slot), layout.row(slot)) for slot in slots]
        assert sorted(places) == [
            (r, row) for r in range(layout.dcp_size) for row in layout.rows_of_page(page)
        ]
        uses.update(places)
    rows = range(layout.page_size, layout.page_size * (pages + 1))
    assert uses == Counter({(rank, row): 1 for rank in range(layout.dcp_size) for row in rows})


@pytest.mark.parametrize(("interleave", "page"), PAGES)
@pytest.mark.parametrize(("tp", "dcp"), GROUPS)
def test_ranks_of_every_tp_group_hold_what_was_dealt(tp: int, dcp: int, interleave: int, page: int) -> None:
    """Two sequences side by side: each DCP group of the TP group holds both whole, row for row."""
    layout = KVLayout(dcp_size=dcp, page_size=page, interleave=interleave)
    free = shuffled_pages(layout, 9)
    sequences = [Dealer(layout, free).deal(length) for length in ragged_lengths(layout)[-2:]]
    seats = (seat for _ in range(tp) for seat in range(dcp))  # ranks sit down in order, group after group
    config = ParallelConfig(tp_size=tp, dcp_size=dcp)
    for tp_rank, seat in zip(range(tp), seats, strict=False):
        mine = ParallelState.from_config(config, tp_rank=tp_rank).attn_dcp_rank
        held: dict[int, tuple[int, int]] = {}
        for number, dealer in enumerate(sequences):
            for position in layout.positions(len(dealer.owners), mine):
                row = layout.row(layout.slot(dealer.pages, position))
                assert row not in held, f"row {row} of tp rank {tp_rank} is used twice"
                held[row] = (number, position)
        assert held == {
            dealer.rows[position]: (number, position)
            for number, dealer in enumerate(sequences)
            for position in dealer.hand(seat, start=0, length=len(dealer.owners))
        }


def test_a_page_that_a_turn_does_not_divide_is_refused() -> None:
    for interleave, page in [(4, 1), (16, 1), (4, 6), (16, 24)]:
        with pytest.raises(
            TopologyError, match=f"page_size {page} is not divisible by interleave {interleave}"
        ):
            KVLayout(dcp_size=2, page_size=page, interleave=interleave)
