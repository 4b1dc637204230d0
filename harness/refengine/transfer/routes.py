"""Which prefill rank sends which KV heads to which decode rank: computed alike on both sides, from both shapes.

A destination takes each of its heads from one source, which holds the destination's positions: any rank where the
prefill side has dcp 1, else the ranks of the same DCP rank. Where several sources hold copies of a head, its
destinations are shared out among them evenly. So each (destination, head, position) has exactly one source; a
prefill rank that only holds copies may have no destination at all, a decode rank always has a source, and the
route from rank 0 to rank 0, which carries the first token too, always exists.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from harness.errors import UsageError
from harness.refengine.transfer.handshake import EngineShape, refuse_pair


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """`source` and `destination` are TP ranks; `heads` are global KV heads, at least one.

    `source_heads` and `destination_heads` say where these stand on the head axis of either pool.
    """

    source: int
    destination: int
    source_dcp_rank: int
    destination_dcp_rank: int
    heads: range
    source_heads: range
    destination_heads: range


def routes(prefill: EngineShape, decode: EngineShape) -> tuple[Route, ...]:
    """Every route of the pair, by source, then destination; raises UsageError where the pair is refused."""
    if reason := refuse_pair(prefill, decode):
        raise UsageError(reason)
    heads_between: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for head in range(prefill.num_kv_heads):
        for dcp_rank in range(prefill.dcp_size):
            for pair in _spread(prefill, decode, head=head, source_dcp_rank=dcp_rank):
                heads_between[pair].append(head)
    return tuple(
        _route(prefill, decode, source=source, destination=destination, heads=range(heads[0], heads[-1] + 1))
        for (source, destination), heads in sorted(heads_between.items())
    )


def routes_from(every: Iterable[Route], source: int) -> tuple[Route, ...]:
    """The routes of one prefill rank; none where others send all that it holds."""
    return tuple(route for route in every if route.source == source)


def routes_to(every: Iterable[Route], destination: int) -> tuple[Route, ...]:
    """The routes to one decode rank, at least one; together they bring all its heads."""
    return tuple(route for route in every if route.destination == destination)


def _spread(
    prefill: EngineShape, decode: EngineShape, *, head: int, source_dcp_rank: int
) -> list[tuple[int, int]]:
    """(source, destination) of one head, over all destinations that take it from this DCP rank."""
    sources = [rank for rank in _holders(prefill, head) if rank % prefill.dcp_size == source_dcp_rank]
    destinations = [
        rank
        for rank in _holders(decode, head)
        if prefill.dcp_size == 1 or rank % decode.dcp_size == source_dcp_rank
    ]
    # Those of one DCP rank get the same rows: neighbours here, so that one source sends them all it can.
    destinations.sort(key=lambda rank: (rank % decode.dcp_size, rank))
    return [
        (sources[nth * len(sources) // len(destinations)], destination)
        for nth, destination in enumerate(destinations)
    ]


def _holders(shape: EngineShape, head: int) -> list[int]:
    return [rank for rank in range(shape.tp_size) if head in shape.kv_heads(rank)]


def _route(
    prefill: EngineShape, decode: EngineShape, *, source: int, destination: int, heads: range
) -> Route:
    return Route(
        source=source,
        destination=destination,
        source_dcp_rank=source % prefill.dcp_size,
        destination_dcp_rank=destination % decode.dcp_size,
        heads=heads,
        source_heads=_within(prefill.kv_heads(source), heads),
        destination_heads=_within(decode.kv_heads(destination), heads),
    )


def _within(held: range, heads: range) -> range:
    return range(heads.start - held.start, heads.stop - held.start)
