"""Who should hold which token: ownership dealt out like cards, for comparison with what ranks really hold.

Deliberately naive: a widened page is a stack of slots, dealt `interleave` at a time to the ranks in turn, each
rank laying its cards into its own rows of that page in order. No owner formula appears here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import cycle

from harness.engines.base import HeldRow, InFlight, KVRows

Place = tuple[int, int]  # (DCP rank, physical row)


def deal_page(page: int, *, page_size: int, dcp_size: int, interleave: int) -> list[Place]:
    """The place of each slot of one logical page, in slot order."""
    next_row = [page * page_size] * dcp_size
    places: list[Place] = []
    for rank in cycle(range(dcp_size)):
        if len(places) == page_size * dcp_size:
            return places
        for _ in range(interleave):
            places.append((rank, next_row[rank]))
            next_row[rank] += 1
    raise AssertionError("unreachable: cycle never ends")


def places_of(request: InFlight, pools: KVRows) -> Iterator[tuple[int, Place]]:
    """(position, place) of every token of a request that is in the pool."""
    position = 0
    for page in request.pages:
        dealt = deal_page(
            page, page_size=pools.page_size, dcp_size=pools.dcp_size, interleave=pools.interleave
        )
        for place in dealt:
            if position == request.kv_len:
                return
            yield position, place
            position += 1


def expected_rows(pools: KVRows) -> list[dict[int, HeldRow]]:
    """Per DCP rank: physical row → the token that belongs there."""
    expected: list[dict[int, HeldRow]] = [{} for _ in range(pools.dcp_size)]
    for request in pools.requests:
        for position, (rank, row) in places_of(request, pools):
            expected[rank][row] = HeldRow(
                row=row, index=request.index, position=position, token=request.tokens[position]
            )
    return expected


def rank_faults(
    *, tp_rank: int, held: Iterable[HeldRow], expected: dict[int, HeldRow]
) -> list[tuple[int, str]]:
    """(row, sentence) of every row that differs, both ways: missing, foreign, and held without an owner."""
    found = {row.row: row for row in held}
    faults = []
    for row in sorted(set(found) | set(expected)):
        ours, wanted = found.get(row), expected.get(row)
        if ours != wanted:
            faults.append(
                (row, f"tp_rank {tp_rank} row {row} holds {_say(ours)}, should hold {_say(wanted)}")
            )
    return faults


def pool_faults(pools: KVRows) -> list[str]:
    """Everything that is not where ownership says, on every rank of an engine, and free rows that were written."""
    faults = []
    expected = expected_rows(pools)
    for rank in pools.ranks:
        told = rank_faults(tp_rank=rank.tp_rank, held=rank.rows, expected=expected[rank.attn_dcp_rank])
        faults += [sentence for _, sentence in told]
        if not rank.poisoned:
            faults.append(f"tp_rank {rank.tp_rank}: a free row was written")
    return faults


def _say(row: HeldRow | None) -> str:
    if row is None:
        return "nothing"
    return f"position {row.position} (token {row.token}) of request {row.index}"
