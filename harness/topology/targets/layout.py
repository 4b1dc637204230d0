"""What the property tests of suite `dcp/layout_unit` ask, and who answers: our arithmetic, or the real package.

A target answers the same questions in plain integers, so that one set of tests, with one brute-force oracle, judges
both. Not every package has a function for every question: `functions` says which it has, tests say which they need.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from harness.errors import UsageError
from harness.topology.config import ParallelConfig
from harness.topology.layout import KVLayout


class Function(StrEnum):
    """A question that a target may have a function for; the value is its name in reports and in the table."""

    LENGTHS = "lengths"
    LENGTHS_IN_PLACE = "lengths in place"
    CHAIN_LENGTHS = "lengths of a chain"
    POSITIONS = "positions"
    OWNER_AND_ROW = "owner and row of one slot"
    ROWS = "rows of a rank"
    CHUNK_ROWS = "rows of a chunk"
    PAGE_ROWS = "rows of whole pages"
    LOCALIZE = "rows or -1"
    SPARSE_ROWS = "rows of chosen slots"
    ROWS_OF_PAGE = "rows of one page"
    SLOTS = "slots of a sequence"
    NUM_PAGES = "pages of a sequence"
    TP_GROUPS = "tp groups"
    DCP_GROUPS = "dcp groups"
    SEAT = "seat in the dcp group"
    Q_HEADS = "query heads of a rank"
    GROUP_Q_HEADS = "query heads of a group"
    KV_HEADS = "kv heads of a rank"
    KV_HEAD_COUNT = "number of kv heads"
    ROW_BYTES = "bytes of a row"
    ROWS_FOR_BUDGET = "rows for a budget"
    CAPACITY = "capacity"
    REQUEST_FITS = "whether a request fits"
    REQUEST_CAP = "cap of a request"


# Questions whose answer depends on how many neighbouring tokens go to one rank.
INTERLEAVED = (
    Function.LENGTHS,
    Function.LENGTHS_IN_PLACE,
    Function.CHAIN_LENGTHS,
    Function.POSITIONS,
    Function.OWNER_AND_ROW,
    Function.ROWS,
    Function.CHUNK_ROWS,
    Function.LOCALIZE,
    Function.SPARSE_ROWS,
)


def named(function: Function, interleave: int = 1) -> str:
    """The function for this interleave: some releases have one for 1 only."""
    return f"{function}, interleaved" if interleave > 1 else str(function)


ALL_FUNCTIONS = frozenset(
    [named(function) for function in Function] + [named(function, 2) for function in INTERLEAVED]
)


class LayoutTarget(Protocol):
    """Answers in plain integers. `rank` is the place in the DCP group of `layout.dcp_size` ranks; a slot is the
    number that an allocator hands out, a row a place in one rank's pool. A question that is not among
    `functions` must not be asked."""

    @property
    def name(self) -> str:
        """As reports say it, with the version."""

    @property
    def functions(self) -> frozenset[str]:
        """Of `ALL_FUNCTIONS`, those that this target has."""

    def local_lens(
        self, layout: KVLayout, rank: int, lengths: Sequence[int], starts: Sequence[int] | None = None
    ) -> list[int]:
        """Of the positions `start..length-1` of each sequence, how many are this rank's."""

    def local_lens_in_place(self, layout: KVLayout, rank: int, lengths: Sequence[int]) -> list[int]:
        """The same without starts, by the function that updates a batch in place."""

    def chain_lens(self, layout: KVLayout, rank: int, lengths: Sequence[int], tokens: int) -> list[int]:
        """For each sequence, this rank's length after each of its last `tokens` tokens; zeros for a sequence
        that is shorter than that."""

    def rows(self, layout: KVLayout, rank: int, slots: Sequence[int]) -> list[int]:
        """The rows of those slots that are this rank's, in their order."""

    def chunk_rows(self, layout: KVLayout, rank: int, chunks: Sequence[tuple[int, list[int]]]) -> list[int]:
        """The same for stretches of sequences, each with the position that it starts at."""

    def page_rows(self, layout: KVLayout, rank: int, slots: Sequence[int]) -> list[int]:
        """The same for whole pages."""

    def localize(self, layout: KVLayout, rank: int, slots: Sequence[int]) -> list[int]:
        """Per slot its row, or -1 where it is not this rank's."""

    def sparse_rows(self, layout: KVLayout, rank: int, slots: Sequence[int]) -> list[int]:
        """This rank's rows in the order of the slots, filled up with -1 to as many; -1 among them is padding."""

    def slots(self, layout: KVLayout, pages: Sequence[int], length: int) -> list[int]:
        """The slots of a sequence by position, which grew in several steps and drew these pages, in order."""

    def num_pages(self, layout: KVLayout, length: int) -> int:
        """Logical pages that a sequence draws."""

    def capacity(self, layout: KVLayout, rows_per_rank: int) -> int:
        """Tokens that a DCP group with pools of this size can hold."""

    def tp_groups(self, config: ParallelConfig) -> list[list[int]]:
        """Rank lists."""

    def dcp_groups(self, config: ParallelConfig) -> list[list[int]]:
        """Rank lists; groups of one where DCP is off."""

    def seat(self, config: ParallelConfig, rank: int) -> tuple[int, int]:
        """DCP rank and size of that rank (`pp_rank * tp_size + tp_rank`)."""

    def q_heads(self, *, num_q_heads: int, num_kv_heads: int, config: ParallelConfig, rank: int) -> list[int]:
        """Query heads that the rank computes."""

    def kv_heads(
        self, *, num_q_heads: int, num_kv_heads: int, config: ParallelConfig, rank: int
    ) -> list[int]:
        """KV heads that the rank stores."""

    def kv_head_count(self, *, num_kv_heads: int, config: ParallelConfig) -> int:
        """How many of them its pool is made for."""

    def admitted(self, layout: KVLayout, *, input_len: int, asked: int, rows_per_rank: int) -> int:
        """New tokens that a request is allowed of those it asked for, alone in the pool."""

    def admission_page(self, layout: KVLayout) -> int:
        """Tokens of the pages by which `admitted` counts: the page of one rank, or the widened one."""


def layout_target(name: str) -> LayoutTarget:
    """`reference` or `sglang`. Raises UsageError for another name, InjectionError where the package is missing."""
    if name == "reference":
        from harness.topology.targets.reference_layout import ReferenceLayout

        return ReferenceLayout()
    if name == "sglang":
        from harness.topology.targets.sglang_layout import SglangLayout

        return SglangLayout()
    raise UsageError(f"target is {name!r}; allowed: reference, sglang")
