"""Token layout against a deal of cards: every rank, row, length and page is counted out, none is computed.

The oracle deals the tokens of a sequence to the ranks in turn, `interleave` at a time. Each rank fills its
own rows one by one; when no rank has a free row on the current page, the next logical page is drawn. Nothing
in it divides by a number of ranks.

`layout_target` is what is judged: our own arithmetic, or with `--target sglang` the package's functions.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice, pairwise

import pytest

from harness.errors import TopologyError
from harness.topology import KVLayout, ParallelConfig
from harness.topology.targets.layout import INTERLEAVED, Function, LayoutTarget, named

GROUPS = [(tp, dcp) for tp in (1, 2, 4, 8) for dcp in (1, 2, 4, 8) if dcp <= tp]
PAGES = [(interleave, page) for interleave in (1, 4, 16) for page in (1, 16, 64) if page >= interleave]
LAYOUTS = [KVLayout(dcp_size=d, page_size=p, interleave=i) for d in (1, 2, 4, 8) for i, p in PAGES]


def needs(interleave: int, *functions: Function) -> pytest.MarkDecorator:
    """The mark of a test that runs for this interleave: some functions have one for 1 only."""
    return pytest.mark.layout_functions(*[named(f, interleave if f in INTERLEAVED else 1) for f in functions])


def layout_id(layout: KVLayout) -> str:
    return f"dcp{layout.dcp_size}-page{layout.page_size}-interleave{layout.interleave}"


def each_layout(*functions: Function) -> pytest.MarkDecorator:
    marked = [
        pytest.param(layout, id=layout_id(layout), marks=needs(layout.interleave, *functions))
        for layout in LAYOUTS
    ]
    return pytest.mark.parametrize("layout", marked)


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

    def rows_of(self, rank: int, *, start: int, length: int) -> list[int]:
        return [self.rows[p] for p in self.hand(rank, start=start, length=length)]

    def slots(self) -> list[int]:
        """By position, numbered as an allocator numbers them."""
        numbers = number_slots(self.layout, max(self.pages, default=0) + 1)
        return [numbers[place] for place in self.places]


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


def longest_dealt(layout: KVLayout) -> Dealer:
    return Dealer(layout, shuffled_pages(layout, 5)).deal(ragged_lengths(layout)[-1])


@each_layout(Function.SLOTS)
def test_slots_are_as_numbered(layout: KVLayout, layout_target: LayoutTarget) -> None:
    dealer = longest_dealt(layout)
    assert layout_target.slots(layout, dealer.pages, len(dealer.places)) == dealer.slots()


@each_layout(Function.OWNER_AND_ROW)
def test_owner_and_row_are_as_dealt(layout: KVLayout) -> None:
    dealer = longest_dealt(layout)
    slots = dealer.slots()
    assert [layout.owner(position) for position in range(len(slots))] == dealer.owners
    assert [layout.owner(slot) for slot in slots] == dealer.owners
    assert [layout.row(slot) for slot in slots] == dealer.rows


@each_layout(Function.ROWS)
def test_each_rank_finds_its_rows_in_order(layout: KVLayout, layout_target: LayoutTarget) -> None:
    dealer = longest_dealt(layout)
    for rank in range(layout.dcp_size):
        found = layout_target.rows(layout, rank, dealer.slots())
        assert found == dealer.rows_of(rank, start=0, length=len(dealer.rows)), rank


@each_layout(Function.CHUNK_ROWS)
def test_each_rank_finds_its_rows_of_chunks(layout: KVLayout, layout_target: LayoutTarget) -> None:
    """A batch of stretches that start anywhere, one of them empty."""
    dealer = longest_dealt(layout)
    slots, ends = dealer.slots(), ragged_lengths(layout)
    stretches = [(3, ends[-1]), (0, ends[-2]), (5, 5), (ends[3], ends[-4]), (ends[2] + 1, ends[-3])]
    chunks = [(start, slots[start:end]) for start, end in stretches if start <= end]
    for rank in range(layout.dcp_size):
        mine = [dealer.rows_of(rank, start=start, length=start + len(part)) for start, part in chunks]
        found = layout_target.chunk_rows(layout, rank, chunks)
        assert found == [row for rows in mine for row in rows], rank


@each_layout(Function.PAGE_ROWS)
def test_each_rank_finds_its_rows_of_whole_pages(layout: KVLayout, layout_target: LayoutTarget) -> None:
    whole = 3 * layout.dcp_size * layout.page_size
    dealer = Dealer(layout, shuffled_pages(layout, 5)).deal(whole)
    for rank in range(layout.dcp_size):
        found = layout_target.page_rows(layout, rank, dealer.slots())
        assert found == dealer.rows_of(rank, start=0, length=whole), rank


@each_layout(Function.LOCALIZE)
def test_slots_of_others_are_marked(layout: KVLayout, layout_target: LayoutTarget) -> None:
    dealer = longest_dealt(layout)
    for rank in range(layout.dcp_size):
        seen = [row if owner == rank else -1 for owner, row in zip(dealer.owners, dealer.rows, strict=True)]
        assert layout_target.localize(layout, rank, [*dealer.slots(), -1]) == [*seen, -1], rank


@each_layout(Function.SPARSE_ROWS)
def test_chosen_slots_keep_their_order(layout: KVLayout, layout_target: LayoutTarget) -> None:
    """Slots chosen by score are in no order, padded with -1; each rank's own come first, in that order."""
    dealer = longest_dealt(layout)
    slots = dealer.slots()
    chosen = random.Random(layout_id(layout)).sample(range(len(slots)), k=min(len(slots), 64))
    padded = [*(slots[position] for position in chosen), -1, -1]
    for rank in range(layout.dcp_size):
        mine = [dealer.rows[position] for position in chosen if dealer.owners[position] == rank]
        fill = [-1] * (len(padded) - len(mine))
        assert layout_target.sparse_rows(layout, rank, padded) == [*mine, *fill], rank


@each_layout(Function.LENGTHS)
def test_lengths_are_as_dealt(layout: KVLayout, layout_target: LayoutTarget) -> None:
    dealer, lengths = longest_dealt(layout), ragged_lengths(layout)
    stretches = [(0, length) for length in lengths] + list(pairwise(lengths)) + [(3, lengths[-1])]
    starts, ends = [start for start, _ in stretches], [end for _, end in stretches]
    for rank in range(layout.dcp_size):
        whole = [len(dealer.hand(rank, start=0, length=length)) for length in lengths]
        assert layout_target.local_lens(layout, rank, lengths) == whole, rank
        parts = [len(dealer.hand(rank, start=start, length=end)) for start, end in stretches]
        assert layout_target.local_lens(layout, rank, ends, starts) == parts, rank


@each_layout(Function.LENGTHS_IN_PLACE)
def test_lengths_are_updated_in_place(layout: KVLayout, layout_target: LayoutTarget) -> None:
    dealer, lengths = longest_dealt(layout), ragged_lengths(layout)
    for rank in range(layout.dcp_size):
        whole = [len(dealer.hand(rank, start=0, length=length)) for length in lengths]
        assert layout_target.local_lens_in_place(layout, rank, lengths) == whole, rank


@each_layout(Function.CHAIN_LENGTHS)
def test_lengths_of_a_chain_grow_token_by_token(layout: KVLayout, layout_target: LayoutTarget) -> None:
    dealer, lengths = longest_dealt(layout), ragged_lengths(layout)
    for rank in range(layout.dcp_size):
        for tokens in (1, 3):
            steps = [[length - tokens + step for step in range(1, tokens + 1)] for length in lengths]
            expected = [
                len(dealer.hand(rank, start=0, length=front)) if length >= tokens else 0
                for length, fronts in zip(lengths, steps, strict=True)
                for front in fronts
            ]
            assert layout_target.chain_lens(layout, rank, lengths, tokens) == expected, (rank, tokens)


@each_layout(Function.POSITIONS)
def test_positions_are_as_dealt(layout: KVLayout) -> None:
    dealer, lengths = longest_dealt(layout), ragged_lengths(layout)
    stretches = [(0, length) for length in lengths] + list(pairwise(lengths)) + [(3, lengths[-1])]
    for rank in range(layout.dcp_size):
        for start, length in stretches:
            hand = dealer.hand(rank, start=start, length=length)
            assert layout.positions(length, rank, start=start) == hand, (rank, start, length)


@each_layout(Function.NUM_PAGES)
def test_page_counts_are_as_drawn(layout: KVLayout, layout_target: LayoutTarget) -> None:
    for length in ragged_lengths(layout):
        dealer = Dealer(layout, shuffled_pages(layout, 5)).deal(length)
        assert layout_target.num_pages(layout, length) == len(dealer.pages), length


@each_layout(Function.SLOTS, Function.ROWS)
def test_a_full_pool_uses_every_row_of_every_rank_once(layout: KVLayout, layout_target: LayoutTarget) -> None:
    pages = 3
    tokens = [None for _ in range(layout.dcp_size) for _ in range(layout.page_size * pages)]
    slots = layout_target.slots(layout, shuffled_pages(layout, pages), len(tokens))
    uses: Counter[tuple[int, int]] = Counter()
    for rank in range(layout.dcp_size):
        uses.update((rank, row) for row in layout_target.rows(layout, rank, slots))
    rows = range(layout.page_size, layout.page_size * (pages + 1))
    assert uses == Counter({(rank, row): 1 for rank in range(layout.dcp_size) for row in rows})


@each_layout(Function.ROWS_OF_PAGE, Function.OWNER_AND_ROW)
def test_a_page_has_the_same_rows_on_each_rank(layout: KVLayout) -> None:
    for page in shuffled_pages(layout, 3):
        dealer = Dealer(layout, [page])
        slots = dealer.deal(
            len([None for _ in range(layout.dcp_size) for _ in range(layout.page_size)])
        ).slots()
        places = [(layout.owner(slot), layout.row(slot)) for slot in slots]
        assert sorted(places) == [
            (r, row) for r in range(layout.dcp_size) for row in layout.rows_of_page(page)
        ]


@pytest.mark.parametrize(
    ("interleave", "page"),
    [pytest.param(i, p, marks=needs(i, Function.SEAT, Function.ROWS, Function.SLOTS)) for i, p in PAGES],
)
@pytest.mark.parametrize(("tp", "dcp"), GROUPS)
def test_ranks_of_every_tp_group_hold_what_was_dealt(
    tp: int, dcp: int, interleave: int, page: int, layout_target: LayoutTarget
) -> None:
    """Two sequences side by side: each DCP group of the TP group holds both whole, row for row."""
    layout = KVLayout(dcp_size=dcp, page_size=page, interleave=interleave)
    free = shuffled_pages(layout, 9)
    sequences = [Dealer(layout, free).deal(length) for length in ragged_lengths(layout)[-2:]]
    seats = (seat for _ in range(tp) for seat in range(dcp))  # ranks sit down in order, group after group
    config = ParallelConfig(tp_size=tp, dcp_size=dcp)
    drawn = [layout_target.slots(layout, dealer.pages, len(dealer.owners)) for dealer in sequences]
    for tp_rank, seat in zip(range(tp), seats, strict=False):
        mine, _ = layout_target.seat(config, tp_rank)
        held: dict[int, tuple[int, int]] = {}
        for number, dealer in enumerate(sequences):
            hand = dealer.hand(mine, start=0, length=len(dealer.owners))
            rows = layout_target.rows(layout, mine, drawn[number])
            for position, row in zip(hand, rows, strict=True):
                assert row not in held, f"row {row} of tp rank {tp_rank} is used twice"
                held[row] = (number, position)
        assert held == {
            dealer.rows[position]: (number, position)
            for number, dealer in enumerate(sequences)
            for position in dealer.hand(seat, start=0, length=len(dealer.owners))
        }


@pytest.mark.layout_functions(Function.OWNER_AND_ROW)
def test_a_page_that_a_turn_does_not_divide_is_refused() -> None:
    for interleave, page in [(4, 1), (16, 1), (4, 6), (16, 24)]:
        with pytest.raises(
            TopologyError, match=f"page_size {page} is not divisible by interleave {interleave}"
        ):
            KVLayout(dcp_size=2, page_size=page, interleave=interleave)
