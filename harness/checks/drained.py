"""`drained`: when the work is done nothing is left behind: no request, no held row, no written free row.

Of a pair, on both sides: rows that a prefill engine keeps for a handover that is long over are a leak too.
"""

from __future__ import annotations

from harness.checks.asks import RequestGroup
from harness.checks.base import BaselineUse, CheckContext, CheckResult, failed, passed, unproven
from harness.checks.sides import sides_behind
from harness.engines import EngineClient, ServerInfo
from harness.suites import DrainedParams

baseline_use = BaselineUse.NEVER


def baseline_asks(params: DrainedParams) -> list[RequestGroup]:
    return []


def run(params: DrainedParams, context: CheckContext) -> CheckResult:
    if context.relaunched:
        return unproven(
            "the engine was launched anew in mid-job: what earlier checks left went with the old one"
        )
    with sides_behind(context.client) as sides:
        engines = [("", context.client)] if sides is None else list(sides.named())
        untold = [who for who, client in engines if client.server_info().ranks is None]
        if untold:
            who = untold[0] or "engine"
            return unproven(f"the {who} tells no KV rows per rank, so that it is drained cannot be proven")
        faults = [
            f"{who}: {fault}" if who else fault
            for who, client in engines
            for fault in left_behind(client, wait=params.wait)
        ]
        if faults:
            return failed(f"after {params.wait:g} s: " + "; ".join(faults), faults=faults)
        rows = sum(rank.kv_rows_free for _, client in engines for rank in client.server_info().ranks or ())
    where = "" if sides is None else " of both sides"
    return passed(f"no request left, all {rows} KV rows{where} free and untouched", free_rows=rows)


def left_behind(client: EngineClient, *, wait: float) -> list[str]:
    """What an engine without work still holds after `wait` seconds, or has written where nobody's row is."""
    client.wait_until(lambda: not _left(client.server_info()), seconds=wait)
    if faults := _left(client.server_info()):
        return faults
    client.flush_cache()
    return [f"tp_rank {r.tp_rank}: a free row was written" for r in client.kv_rows().ranks if not r.poisoned]


def _left(info: ServerInfo) -> list[str]:
    left = []
    if info.running or info.waiting:
        left.append(f"{info.running} requests running, {info.waiting} waiting")
    for rank in info.ranks or ():
        if rank.kv_rows_free != rank.kv_rows:
            left.append(
                f"tp_rank {rank.tp_rank} holds {rank.kv_rows - rank.kv_rows_free} of {rank.kv_rows} rows"
            )
    return left
