"""`rows`: while requests run, every physical row of every rank holds the token that ownership says.

An ownership fault that permutes consistently changes no output, so only this check sees it; a PD peer that
relies on the layout would read its neighbour's tokens.
"""

from __future__ import annotations

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
from harness.checks.ownership import pool_faults
from harness.engines import GenerateRequest, KVRows
from harness.errors import RequestRefusedError
from harness.suites import RowsParams

baseline_use = BaselineUse.NEVER

SHOWN = 4


def baseline_asks(params: RowsParams) -> list[RequestGroup]:
    return []


def run(params: RowsParams, context: CheckContext) -> CheckResult:
    try:
        context.client.kv_rows()
    except RequestRefusedError as error:
        return unproven(f"the engine does not tell what its KV rows hold: {error}")
    requests = {
        f"rows-{length}": GenerateRequest(
            input_ids=random_prompt(length, seed=length), max_new_tokens=params.max_new_tokens
        )
        for length in params.lengths
    }
    with in_flight(context.client, requests):
        pools = context.client.kv_rows()
    faults = _faults(pools, params=params)
    checked = sum(len(rank.rows) for rank in pools.ranks)
    figures = {
        "rows_checked": checked,
        "requests": [{"index": r.index, "kv_len": r.kv_len} for r in pools.requests],
        "rows_per_rank": [len(rank.rows) for rank in pools.ranks],
    }
    if faults:
        return failed(f"{len(faults)} faults: " + "; ".join(faults[:SHOWN]), faults=faults[:100], **figures)
    return passed(
        f"{checked} rows on {len(pools.ranks)} ranks hold the token that ownership says, "
        f"{len(pools.requests)} requests in flight",
        **figures,
    )


def _faults(pools: KVRows, *, params: RowsParams) -> list[str]:
    faults = []
    if len(pools.requests) != len(params.lengths):
        faults.append(f"{len(pools.requests)} requests in flight, expected {len(params.lengths)}")
    return faults + pool_faults(pools)
