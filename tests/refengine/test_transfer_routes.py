"""Every (destination, head, position) has exactly one source, which holds it: against enumeration of all of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

import pytest
from handover_driver import dealt_to
from hypothesis import given
from hypothesis import strategies as st
from pd_pairs import Pair

from harness.errors import UsageError
from harness.refengine.transfer.handshake import EngineShape
from harness.refengine.transfer.packing import expected_positions
from harness.refengine.transfer.routes import Route, routes, routes_from, routes_to

SIZES = (1, 2, 4, 8)


@st.composite
def shapes(draw: st.DrawFn) -> tuple[EngineShape, EngineShape]:
    """Any pair that is supported: dcp 1 to any, or equal."""
    kv_heads = draw(st.sampled_from((1, 2, 8)))
    decode_tp, prefill_tp = draw(st.sampled_from(SIZES)), draw(st.sampled_from(SIZES))
    dcp = draw(st.sampled_from([size for size in SIZES if size <= decode_tp]))
    same = dcp <= prefill_tp and draw(st.booleans())
    interleave = draw(st.sampled_from((1, 2, 4)))
    prefill, decode = Pair(kv_heads=kv_heads, shows="").shapes()
    return (
        replace(prefill, tp_size=prefill_tp, dcp_size=dcp if same else 1, interleave=interleave),
        replace(decode, tp_size=decode_tp, dcp_size=dcp, interleave=interleave),
    )


def heads_held(shape: EngineShape) -> list[list[int]]:
    """Global KV heads of each rank: cut over the DCP groups, or each head given to as many groups as come to it."""
    groups = shape.tp_size // shape.dcp_size
    heads = list(range(shape.num_kv_heads))
    copies = [head for head in heads for _ in range(max(1, groups // len(heads)))]
    share = len(copies) // groups
    return [
        copies[group * share : (group + 1) * share] for group in range(groups) for _ in range(shape.dcp_size)
    ]


def positions_held(shape: EngineShape, length: int) -> list[set[int]]:
    owners = [dealt_to(p, dcp=shape.dcp_size, interleave=shape.interleave) for p in range(length)]
    return [{p for p in range(length) if owners[p] == rank % shape.dcp_size} for rank in range(shape.tp_size)]


def cells(prefill: EngineShape, decode: EngineShape, route: Route, length: int) -> list[tuple[int, int, int]]:
    """(destination, head, position) that this route brings."""
    positions = expected_positions(
        prefill.layout(),
        decode.layout(),
        length=length,
        source_dcp_rank=route.source_dcp_rank,
        destination_dcp_rank=route.destination_dcp_rank,
    ).tolist()
    return [(route.destination, head, position) for head in route.heads for position in positions]


@given(shapes(), st.integers(1, 40))
def test_each_cell_comes_from_exactly_one_source_that_holds_it(
    pair: tuple[EngineShape, EngineShape], length: int
) -> None:
    prefill, decode = pair
    there, wanted = positions_held(prefill, length), positions_held(decode, length)
    brought: Counter[tuple[int, int, int]] = Counter()
    for route in routes(prefill, decode):
        for destination, head, position in cells(prefill, decode, route, length):
            assert head in heads_held(prefill)[route.source] and position in there[route.source]
            brought[destination, head, position] += 1
    every = {
        (rank, head, position)
        for rank in range(decode.tp_size)
        for head in heads_held(decode)[rank]
        for position in wanted[rank]
    }
    assert brought == Counter(every)


@given(shapes())
def test_heads_are_where_each_pool_has_them(pair: tuple[EngineShape, EngineShape]) -> None:
    prefill, decode = pair
    for route in routes(prefill, decode):
        assert route.source_dcp_rank == route.source % prefill.dcp_size
        assert route.destination_dcp_rank == route.destination % decode.dcp_size
        assert [heads_held(prefill)[route.source][at] for at in route.source_heads] == list(route.heads)
        assert [heads_held(decode)[route.destination][at] for at in route.destination_heads] == list(
            route.heads
        )


@given(shapes())
def test_copies_of_a_head_share_its_destinations(pair: tuple[EngineShape, EngineShape]) -> None:
    prefill, decode = pair
    every = routes(prefill, decode)
    for head in range(prefill.num_kv_heads):
        for dcp_rank in range(prefill.dcp_size):
            copies = [
                rank
                for rank in range(prefill.tp_size)
                if head in heads_held(prefill)[rank] and rank % prefill.dcp_size == dcp_rank
            ]
            loads = [sum(head in route.heads for route in routes_from(every, rank)) for rank in copies]
            assert max(loads) - min(loads) <= 1


@given(shapes())
def test_ranks_0_always_meet_and_nobody_is_left_out(pair: tuple[EngineShape, EngineShape]) -> None:
    prefill, decode = pair
    every = routes(prefill, decode)
    pairs = [(route.source, route.destination) for route in every]
    assert pairs[0] == (0, 0) and pairs == sorted(set(pairs))
    assert all(route.heads for route in every)
    assert all(routes_to(every, rank) for rank in range(decode.tp_size))
    assert [r for rank in range(prefill.tp_size) for r in routes_from(every, rank)] == list(every)


def test_copies_of_a_head_share_the_work() -> None:
    """One KV head at tp 2 to tp 8, dcp 2: each source serves one DCP rank, in all its groups."""
    prefill, decode = Pair(prefill={"tp": 2}, decode={"tp": 8, "dcp": 2}, kv_heads=1, shows="").shapes()
    every = routes(prefill, decode)
    assert [[r.destination for r in routes_from(every, source)] for source in range(2)] == [
        [0, 2, 4, 6],
        [1, 3, 5, 7],
    ]


def test_two_ranks_bring_one_head_each_to_all_four() -> None:
    prefill, decode = Pair(prefill={"tp": 2}, decode={"tp": 4, "dcp": 4}, shows="").shapes()
    heads: defaultdict[int, list[tuple[int, range, range]]] = defaultdict(list)
    for route in routes(prefill, decode):
        heads[route.destination].append((route.source, route.source_heads, route.destination_heads))
    assert dict(heads) == {rank: [(0, range(1), range(1)), (1, range(1), range(1, 2))] for rank in range(4)}


def test_a_refused_pair_has_no_routes() -> None:
    prefill, decode = Pair(prefill={"tp": 2, "dcp": 2}, decode={"tp": 4, "dcp": 4}, shows="").shapes()
    with pytest.raises(UsageError, match="--dcp is 2 on the prefill side and 4 on the decode side"):
        routes(prefill, decode)
