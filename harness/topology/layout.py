"""Where the KV of a token lives: owner rank, physical row, lengths, pages, heads, bytes, capacity.

Pure arithmetic over integers; nothing here knows tensors, pools or processes. The formulas are section 5 of
the design ("Topology: what the numbers mean"); suite `dcp/layout_unit` checks them against enumeration.
Every function raises TopologyError for numbers that no engine could be built with.

Words: a *slot* is a logical place that the allocator hands out, the same number on every rank of a DCP group;
a *row* is a physical place in one rank's pool. A logical page holds `page_size * dcp_size` slots (the widened
page), and takes `page_size` rows on each rank. Page 0 is reserved: padding writes go there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from harness.errors import TopologyError
from harness.topology.config import require_divides, require_positive


class Arithmetic(Protocol):
    """What owner and row need of a number; an int has it, and so has an integer tensor or array."""

    def __floordiv__(self: N, other: int, /) -> N: ...

    def __mod__(self: N, other: int, /) -> N: ...

    def __mul__(self: N, other: int, /) -> N: ...

    def __add__(self: N, other: N, /) -> N: ...


N = TypeVar("N", bound=Arithmetic)


@dataclass(frozen=True, slots=True, kw_only=True)
class KVLayout:
    """How one DCP group divides tokens; lengths, positions, slots and rows all count tokens.

    `interleave` neighbouring tokens go to one rank before the next rank's turn, as cards are dealt; it must
    divide `page_size`, so that a page starts with rank 0's turn and pages can be placed anywhere.
    """

    dcp_size: int
    page_size: int
    interleave: int = 1

    def __post_init__(self) -> None:
        require_positive(dcp_size=self.dcp_size, page_size=self.page_size, interleave=self.interleave)
        require_divides(
            total=self.page_size,
            total_name="page_size",
            part=self.interleave,
            part_name="interleave",
            rule="every page must start with the first rank's turn",
        )

    @property
    def widened_page_size(self) -> int:
        """Tokens of one logical page over all ranks of the group."""
        return self.page_size * self.dcp_size

    def owner(self, position: N) -> N:
        """The rank in its DCP group that holds the token at this position, or this slot (int or tensor)."""
        return position // self.interleave % self.dcp_size

    def row(self, slot: N) -> N:
        """The physical row of a slot in its owner's pool (int or tensor); on other ranks it means nothing."""
        return slot // (self.interleave * self.dcp_size) * self.interleave + slot % self.interleave

    def slot(self, pages: Sequence[int], position: int) -> int:
        """The slot of the token at `position` of a sequence that holds these logical pages, in order."""
        index, offset = divmod(position, self.widened_page_size)
        if not 0 <= index < len(pages):
            held = len(pages) * self.widened_page_size
            raise TopologyError(f"position {position} lies outside the {held} tokens of {len(pages)} pages")
        if pages[index] < 0:
            raise TopologyError(f"page is {pages[index]}, but pages count from 0")
        return pages[index] * self.widened_page_size + offset

    def local_len(self, length: int, rank: int, *, start: int = 0) -> int:
        """How many of the positions `start..length-1` are this rank's; with interleave 1 and start 0 that is
        `length // dcp + (rank < length % dcp)`."""
        self._check(length=length, rank=rank, start=start)
        return self._dealt(length, rank) - self._dealt(start, rank)

    def positions(self, length: int, rank: int, *, start: int = 0) -> list[int]:
        """Those positions themselves, rising: the order of the rank's rows within each page."""
        self._check(length=length, rank=rank, start=start)
        return [position for position in range(start, length) if self.owner(position) == rank]

    def num_pages(self, length: int) -> int:
        """Logical pages that a sequence of this length takes."""
        self._check(length=length, rank=0, start=0)
        return -(-length // self.widened_page_size)

    def rows_of_page(self, page: int) -> range:
        """The physical rows of a logical page: the same on each rank."""
        if page < 0:
            raise TopologyError(f"page is {page}, but pages count from 0")
        return range(page * self.page_size, (page + 1) * self.page_size)

    def _dealt(self, length: int, rank: int) -> int:
        """Tokens that this rank has after `length` were dealt: whole rounds, and its turn in the last one."""
        rounds, rest = divmod(length, self.interleave * self.dcp_size)
        return rounds * self.interleave + min(max(rest - rank * self.interleave, 0), self.interleave)

    def _check(self, *, length: int, rank: int, start: int) -> None:
        if not 0 <= rank < self.dcp_size:
            raise TopologyError(f"rank is {rank}, but the DCP group has ranks 0..{self.dcp_size - 1}")
        if not 0 <= start <= length:
            raise TopologyError(
                f"positions {start}..{length} are no stretch of a sequence: 0 <= start <= length"
            )


def q_head_range(*, num_q_heads: int, tp_size: int, tp_rank: int) -> range:
    """The global query heads that one TP rank computes: an equal, contiguous share."""
    return group_q_head_range(num_q_heads=num_q_heads, tp_size=tp_size, dcp_size=1, tp_rank=tp_rank)


def group_q_head_range(*, num_q_heads: int, tp_size: int, dcp_size: int, tp_rank: int) -> range:
    """The global query heads of this rank's whole DCP group, which its decode attention sees gathered."""
    require_positive(num_q_heads=num_q_heads)
    group, _ = _head_group(tp_size=tp_size, dcp_size=dcp_size, tp_rank=tp_rank)
    rule = "every rank computes as many query heads"
    require_divides(total=num_q_heads, total_name="num_q_heads", part=tp_size, part_name="tp_size", rule=rule)
    share = num_q_heads // tp_size * dcp_size
    return range(group * share, (group + 1) * share)


def kv_head_range(*, num_kv_heads: int, tp_size: int, dcp_size: int, tp_rank: int) -> range:
    """The global KV heads that one rank stores: the same for every rank of a DCP group.

    They are laid out over `tp_size / dcp_size` groups; with fewer heads than groups, neighbouring groups hold
    copies of one head. `tp_size` counts the ranks of attention TP. Raises TopologyError where heads and
    groups do not divide each other.
    """
    require_positive(num_kv_heads=num_kv_heads)
    group, groups = _head_group(tp_size=tp_size, dcp_size=dcp_size, tp_rank=tp_rank)
    if num_kv_heads % groups == 0:
        share = num_kv_heads // groups
        return range(group * share, (group + 1) * share)
    if groups % num_kv_heads == 0:
        head = group // (groups // num_kv_heads)
        return range(head, head + 1)
    raise TopologyError(
        f"num_kv_heads {num_kv_heads} and the {groups} head groups of tp_size {tp_size} / dcp_size {dcp_size}"
        " do not divide each other: a group holds whole heads, or a head is copied to whole groups"
    )


def _head_group(*, tp_size: int, dcp_size: int, tp_rank: int) -> tuple[int, int]:
    """Index of the rank's DCP group, and how many groups there are."""
    require_positive(tp_size=tp_size, dcp_size=dcp_size)
    require_divides(
        total=tp_size,
        total_name="tp_size",
        part=dcp_size,
        part_name="dcp_size",
        rule="DCP groups are contiguous slices of equal size of each TP group",
    )
    if not 0 <= tp_rank < tp_size:
        raise TopologyError(f"tp_rank is {tp_rank}, but must be in 0..{tp_size - 1}")
    return tp_rank // dcp_size, tp_size // dcp_size


def row_bytes(*, num_layers: int, kv_heads_per_rank: int, head_dim: int, dtype_bytes: int) -> int:
    """Bytes that one physical row takes on one rank: a K and a V vector per layer and stored head."""
    require_positive(
        num_layers=num_layers, kv_heads_per_rank=kv_heads_per_rank, head_dim=head_dim, dtype_bytes=dtype_bytes
    )
    return 2 * num_layers * kv_heads_per_rank * head_dim * dtype_bytes


def rows_for_budget(*, budget_bytes: int, row_bytes: int, page_size: int) -> int:
    """Physical rows of one rank that tokens may use: whole pages within the budget, less the reserved page 0.

    `page_size` is in rows (not widened). Raises TopologyError where no page is left to use.
    """
    require_positive(row_bytes=row_bytes, page_size=page_size)
    if type(budget_bytes) is not int:
        raise TopologyError(f"budget_bytes is {budget_bytes!r}, but must be an integer")
    usable_pages = budget_bytes // (row_bytes * page_size) - 1
    if usable_pages < 1:
        raise TopologyError(
            f"a budget of {budget_bytes} B leaves no page of {page_size} rows * {row_bytes} B beside the"
            f" reserved page 0: at least {2 * row_bytes * page_size} B are needed"
        )
    return usable_pages * page_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """How much a DCP group holds: usable rows of each rank (page 0 not among them), over its ranks."""

    rows_per_rank: int
    dcp_size: int

    def __post_init__(self) -> None:
        require_positive(rows_per_rank=self.rows_per_rank, dcp_size=self.dcp_size)

    @property
    def max_total_num_tokens(self) -> int:
        """Tokens over all ranks of the group: what scheduler, caps and reports count in."""
        return self.rows_per_rank * self.dcp_size


def request_fits(*, input_len: int, max_new_tokens: int, layout: KVLayout, capacity: Capacity) -> bool:
    """Whether a request can ever run, alone in the pool: the pages of its input, its answer, and one page of
    headroom together stay below the aggregate cap. Lengths in tokens, pages widened."""
    if max_new_tokens < 0:
        raise TopologyError(f"max_new_tokens is {max_new_tokens}, but must be at least 0")
    if layout.dcp_size != capacity.dcp_size:
        raise TopologyError(f"layout has dcp_size {layout.dcp_size}, but capacity has {capacity.dcp_size}")
    pages = layout.num_pages(input_len) + 1
    return pages * layout.widened_page_size + max_new_tokens < capacity.max_total_num_tokens
