"""`transfer`: a prefill engine's KV arrived where the decode engine's ranks own it, whole, and only once.

While requests run that came through the router, every row of the decode side holds the token that ownership says;
and the bytes that each rank counted are those of the prompt rows it owns. Two ranks' rows exchanged change no
answer at all: only this check sees it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from harness.checks.asks import RequestGroup
from harness.checks.base import (
    BaselineUse,
    CheckContext,
    CheckResult,
    failed,
    passed,
    random_prompt,
    unproven,
)
from harness.checks.flights import in_flight
from harness.checks.ownership import places_of, pool_faults
from harness.checks.sides import Sides, sides_behind
from harness.engines import GenerateRequest, KVRows, RankInfo, RankTransfer
from harness.errors import RequestRefusedError
from harness.suites import TransferParams

baseline_use = BaselineUse.NEVER

SHOWN = 4
# A prefill rank counts what it sent; the first token of an answer may be here a moment before that is told.
SETTLE_S = 2.0

Prompts = Mapping[str, GenerateRequest]


def baseline_asks(params: TransferParams) -> list[RequestGroup]:
    return []


def run(params: TransferParams, context: CheckContext) -> CheckResult:
    with sides_behind(context.client) as sides:
        if sides is None:
            return unproven(
                "no pair of engines is told of here: ask the router before a prefill and a decode engine"
            )
        if why := _why_unproven(sides):
            return unproven(why)
        return _run(params, context, sides)


def _run(params: TransferParams, context: CheckContext, sides: Sides) -> CheckResult:
    prompts = _prompts(params)
    before = _Counts.told_by(sides)
    with in_flight(context.client, prompts):
        pools = [engine.kv_rows() for engine in sides.decode]
        owned = _owned(sides, pools, prompts)
        context.client.wait_until(lambda: not list(_byte_faults(sides, before, owned)), seconds=SETTLE_S)
        moved = list(_byte_faults(sides, before, owned))
    faults = list(_lost(pools, prompts)) + [fault for each in pools for fault in pool_faults(each)] + moved
    total = sum(sum(ranks.values()) for ranks in owned.bytes)
    figures = {
        "requests": len(prompts),
        "rows_owned": owned.rows,
        "bytes_owned": total,
        "bytes_owned_per_rank": [dict(sorted(ranks.items())) for ranks in owned.bytes],
    }
    if faults:
        return failed(f"{len(faults)} faults: " + "; ".join(faults[:SHOWN]), faults=faults[:100], **figures)
    ranks = sum(len(each.ranks) for each in pools)
    return passed(
        f"{len(prompts)} prompts: {ranks} decode ranks hold the tokens that ownership says, "
        f"and got the {total:,} bytes of KV of their {owned.rows:,} rows, each once",
        **figures,
    )


def _prompts(params: TransferParams) -> dict[str, GenerateRequest]:
    return {
        f"transfer-{index}": GenerateRequest(
            input_ids=random_prompt(length, seed=index), max_new_tokens=params.max_new_tokens
        )
        for index, length in enumerate(params.lengths)
    }


def _why_unproven(sides: Sides) -> str | None:
    """What the engines do not tell, and without which nothing is proven."""
    for who, engine in sides.named():
        ranks = engine.server_info().ranks
        if ranks is None or any(rank.transfer is None for rank in ranks):
            return f"the {who} does not tell how many bytes of KV its ranks have handed over"
    try:
        for engine in sides.decode:
            engine.kv_rows()
    except RequestRefusedError as error:
        return f"the decode engine does not tell what its KV rows hold: {error}"
    return None


@dataclass(frozen=True, slots=True)
class _Counts:
    """Bytes of KV: what the prefill ranks sent in all and to each decode tp_rank, and what each decode rank of each
    decode engine received."""

    sent: int
    sent_to: Counter[int]
    received: tuple[Mapping[int, int], ...]

    @classmethod
    def told_by(cls, sides: Sides) -> _Counts:
        sent = [each for engine in sides.prefill for each in _transfers(engine.server_info().ranks).values()]
        to: Counter[int] = Counter()
        for each in sent:
            to.update(each.bytes_by_peer)
        received = tuple(
            {rank: each.bytes for rank, each in _transfers(engine.server_info().ranks).items()}
            for engine in sides.decode
        )
        return cls(sum(each.bytes for each in sent), to, received)


def _transfers(ranks: tuple[RankInfo, ...] | None) -> dict[int, RankTransfer]:
    return {rank.tp_rank: rank.transfer for rank in ranks or () if rank.transfer is not None}


@dataclass(frozen=True, slots=True)
class _Owned:
    """Bytes of prompt KV that belong to each rank of each decode engine, and how many rows all of them are."""

    bytes: tuple[Mapping[int, int], ...]
    rows: int


def _owned(sides: Sides, pools: list[KVRows], prompts: Prompts) -> _Owned:
    """Counted from the dealt places of every prompt position; what was generated since never travelled."""
    per_engine, rows = [], 0
    for engine, pool in zip(sides.decode, pools, strict=True):
        held: Counter[int] = Counter()
        for request in pool.requests:
            length = _prompt_length(request.tokens, prompts)
            held.update(dcp_rank for position, (dcp_rank, _) in places_of(request, pool) if position < length)
        ranks = engine.server_info().ranks or ()
        per_engine.append({rank.tp_rank: held[rank.attn_dcp_rank] * rank.kv_row_bytes for rank in ranks})
        rows += sum(held[rank.attn_dcp_rank] for rank in ranks)
    return _Owned(tuple(per_engine), rows)


def _prompt_length(tokens: tuple[int, ...], prompts: Prompts) -> int:
    """Of the prompt that a running request began with; the longest, where one begins like another. 0 for a stranger."""
    lengths = [len(p.input_ids) for p in prompts.values() if tokens[: len(p.input_ids)] == p.input_ids]
    return max(lengths, default=0)


def _lost(pools: list[KVRows], prompts: Prompts) -> Iterator[str]:
    running = sum(len(pool.requests) for pool in pools)
    if running != len(prompts):
        yield f"{running} requests in flight on the decode side, expected {len(prompts)}"


def _byte_faults(sides: Sides, before: _Counts, owned: _Owned) -> Iterator[str]:
    """What moved since `before` and should not have, or did not and should have."""
    after = _Counts.told_by(sides)
    for old, new, mine in zip(before.received, after.received, owned.bytes, strict=True):
        for rank, wanted in sorted(mine.items()):
            got = new[rank] - old[rank]
            if got != wanted:
                yield f"tp_rank {rank} of decode received {got:,} bytes of KV, owns {wanted:,}"
    for rank in sorted(set().union(*owned.bytes)):
        sent, wanted = after.sent_to[rank] - before.sent_to[rank], sum(mine[rank] for mine in owned.bytes)
        if sent != wanted:
            yield f"prefill sent {sent:,} bytes of KV to tp_rank {rank}, which owns {wanted:,}"
    total = sum(sum(mine.values()) for mine in owned.bytes)
    if after.sent - before.sent != total:
        yield f"prefill sent {after.sent - before.sent:,} bytes of KV in all, {total:,} are owned"
