"""Prefill on one ThreadWorld, KV handed over block by block, decode on another: real pools, no sockets."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise

from engine_driver import Request, gap, make_runner, plan_pages, prompts
from pd_pairs import shape_of
from torch import Tensor

from harness.refengine.batch import Batch, ForwardMode
from harness.refengine.comm import Comms, ThreadWorld
from harness.refengine.config import EngineConfig
from harness.refengine.kv_pool import KVPool
from harness.refengine.transfer.packing import (
    Block,
    BlockFormat,
    destination_rows,
    expected_positions,
    pack_rows,
    source_rows,
    transfer_positions,
    unpack_rows,
)
from harness.refengine.transfer.routes import Route, routes, routes_from, routes_to
from harness.topology import KVLayout

# Rows of a block: it ends within pages and within chunks.
BLOCK_ROWS = 7

Blocks = dict[tuple[Route, int], list[bytes]]


@dataclass
class Landed:
    """`rows[r]` are those that decode rank r holds before it decodes, as `/kv_rows` lists them; `gap` is the largest
    error of any log-probability of prompts and answers."""

    rows: list[list[list[int]]]
    requests: list[Request]
    gap: float
    poison_intact: bool


def hand_over(
    prefill: EngineConfig, decode: EngineConfig, lengths: Sequence[int], *, new_tokens: int = 4
) -> Landed:
    """Prompts of these lengths through both engines."""
    sent = [
        Request(index=40 + nth, tokens=prompt, pages=pages)
        for nth, (prompt, pages) in enumerate(
            zip(prompts(lengths), plan_pages(prefill, lengths), strict=True)
        )
    ]
    computed = ThreadWorld(prefill).run(
        lambda rank, comms: _prefill(prefill, rank, comms, deepcopy(sent)),
    )
    blocks = _send(prefill, decode, [pool for pool, _ in computed], sent)
    pages = plan_pages(decode, [length + new_tokens for length in lengths], seed=5)
    awaited = [
        Request(index=nth, tokens=r.tokens, pages=pages[nth], rows=r.rows)
        for nth, r in enumerate(computed[0][1])
    ]

    def rank_main(rank: int, comms: Comms) -> tuple[list[list[int]], bool, list[Request]]:
        runner, mine = make_runner(decode, rank, comms), deepcopy(awaited)
        _receive(prefill, decode, rank, runner.pool, blocks, mine)
        held, intact = runner.pool.held_rows(), runner.pool.check_poison()
        for _ in range(new_tokens):
            for request in mine:
                request.tokens.append(int(request.rows[-1].argmax()))
            chunks = tuple(r.chunk(len(r.tokens) - 1, len(r.tokens)) for r in mine)
            for request, row in zip(
                mine, runner.forward(Batch(mode=ForwardMode.DECODE, chunks=chunks)), strict=True
            ):
                request.rows.append(row)
        return held, intact, mine

    decoded = ThreadWorld(decode).run(rank_main)
    answered = decoded[0][2]
    return Landed(
        rows=[held for held, _, _ in decoded],
        requests=answered,
        gap=max(gap(request, decode) for request in answered),
        poison_intact=all(intact for _, intact, _ in decoded),
    )


def rows_by_hand(
    config: EngineConfig, requests: Sequence[Request], lengths: Sequence[int]
) -> list[list[list[int]]]:
    """What each decode rank should hold: every token dealt out one by one."""
    ranks: list[list[list[int]]] = [[] for _ in range(config.tp)]
    for request, length in zip(requests, lengths, strict=True):
        free = [[row for page in request.pages for row in rows_of(config, page)] for _ in range(config.dcp)]
        for position in range(length):
            owner = dealt_to(position, dcp=config.dcp, interleave=config.interleave)
            row = free[owner].pop(0)
            for rank in range(owner, config.tp, config.dcp):
                ranks[rank].append([row, request.index, position, request.tokens[position]])
    return [sorted(rows) for rows in ranks]


def dealt_to(position: int, *, dcp: int, interleave: int) -> int:
    """As cards are dealt, `interleave` at a time."""
    owner = 0
    for nth in range(position):
        if (nth + 1) % interleave == 0:
            owner = owner + 1 if owner + 1 < dcp else 0
    return owner


def rows_of(config: EngineConfig, page: int) -> range:
    return range(page * config.page_size, (page + 1) * config.page_size)


def _prefill(
    config: EngineConfig, rank: int, comms: Comms, requests: list[Request]
) -> tuple[KVPool, list[Request]]:
    runner = make_runner(config, rank, comms)
    for request in requests:
        for start, stop in _chunks(config, request):
            chunk = request.chunk(start, stop)
            request.rows.extend(runner.forward(Batch(mode=ForwardMode.EXTEND, chunks=(chunk,))))
    return runner.pool, requests


def _send(
    prefill: EngineConfig, decode: EngineConfig, pools: list[KVPool], requests: list[Request]
) -> Blocks:
    """All blocks of each route and prompt, as they travel."""
    blocks: Blocks = {}
    every = routes(shape_of(prefill), shape_of(decode))
    for source, pool in enumerate(pools):
        for route in routes_from(every, source):
            for nth, request in enumerate(requests):
                blocks[route, nth] = _packed(route, pool, decode.layout(), request, _chunks(prefill, request))
    return blocks


def _packed(
    route: Route, pool: KVPool, decode: KVLayout, request: Request, chunks: list[tuple[int, int]]
) -> list[bytes]:
    blocks: list[bytes] = []
    for start, stop in chunks:
        positions = transfer_positions(
            pool.layout,
            decode,
            start=start,
            stop=stop,
            source_dcp_rank=route.source_dcp_rank,
            destination_dcp_rank=route.destination_dcp_rank,
        )
        rows = source_rows(pool.layout, request.pages, positions)
        parts = [part for part in rows.split(BLOCK_ROWS) if len(part)]
        blocks.extend(pack_rows(pool, part, route.source_heads).to_bytes() for part in parts)
    return blocks


def _receive(
    prefill: EngineConfig,
    decode: EngineConfig,
    rank: int,
    pool: KVPool,
    blocks: Blocks,
    requests: list[Request],
) -> None:
    for route in routes_to(routes(shape_of(prefill), shape_of(decode)), rank):
        for nth, request in enumerate(requests):
            expected = expected_positions(
                prefill.layout(),
                pool.layout,
                length=len(request.tokens),
                source_dcp_rank=route.source_dcp_rank,
                destination_dcp_rank=route.destination_dcp_rank,
            )
            _unpack(route, pool, blocks[route, nth], request, expected=expected)


def _unpack(route: Route, pool: KVPool, blocks: list[bytes], request: Request, *, expected: Tensor) -> None:
    form = BlockFormat(
        num_layers=pool.kv.shape[0],
        kv_heads=len(route.heads),
        head_dim=pool.kv.shape[-1],
        dtype=pool.kv.dtype,
    )
    received = [Block.from_bytes(data, form) for data in blocks]
    counts = [len(block.positions) for block in received]
    assert sum(counts) == len(expected)
    places = destination_rows(pool.layout, request.pages, expected).split(counts) if counts else ()
    for block, rows in zip(received, places, strict=True):
        unpack_rows(pool, block, index=request.index, rows=rows, heads=route.destination_heads)


def _chunks(config: EngineConfig, request: Request) -> list[tuple[int, int]]:
    return list(pairwise([*range(0, len(request.tokens), config.chunked_prefill_size), len(request.tokens)]))
