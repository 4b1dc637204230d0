"""Which token each row of each rank must hold, by dealing tokens out like cards."""

from __future__ import annotations

from itertools import cycle, islice
from typing import Any


def owners(length: int, *, dcp: int, interleave: int) -> list[int]:
    """Who holds each position, dealt out one after the other."""
    deal = (rank for rank in cycle(range(dcp)) for _ in range(interleave))
    return list(islice(deal, length))


def expected_rows(dump: Any, *, rank: int) -> dict[int, list[int]]:
    """Brute force: deal each request's tokens out; each owner fills the rows of the page table in order."""
    dcp, page_size, interleave = dump["dcp_size"], dump["page_size"], dump["interleave"]
    rows: dict[int, list[int]] = {}
    for request in dump["requests"]:
        free = iter(
            row for page in request["pages"] for row in range(page * page_size, (page + 1) * page_size)
        )
        for position, owner in enumerate(owners(request["kv_len"], dcp=dcp, interleave=interleave)):
            if owner == rank:
                rows[next(free)] = [request["index"], position, request["tokens"][position]]
    return rows
