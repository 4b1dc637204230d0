"""`drained`: when the work is done nothing is left behind: no request, no held row, no written free row."""

from __future__ import annotations

from harness.checks.asks import RequestGroup
from harness.checks.base import BaselineUse, CheckContext, CheckResult, failed, passed, unproven
from harness.engines import ServerInfo
from harness.suites import DrainedParams

baseline_use = BaselineUse.NEVER


def baseline_asks(params: DrainedParams) -> list[RequestGroup]:
    return []


def run(params: DrainedParams, context: CheckContext) -> CheckResult:
    client = context.client
    if context.relaunched:
        return unproven(
            "the engine was launched anew in mid-job: what earlier checks left went with the old one"
        )
    if client.server_info().ranks is None:
        return unproven("the engine tells no KV rows per rank, so that it is drained cannot be proven")
    client.wait_until(lambda: not _left(client.server_info()), seconds=params.wait)
    info = client.server_info()
    faults = _left(info)
    if not faults:
        client.flush_cache()
        faults = [
            f"tp_rank {r.tp_rank}: a free row was written" for r in client.kv_rows().ranks if not r.poisoned
        ]
    if faults:
        return failed(f"after {params.wait:g} s: " + "; ".join(faults), faults=faults)
    rows = sum(rank.kv_rows_free for rank in info.ranks or ())
    return passed(f"no request left, all {rows} KV rows free and untouched", free_rows=rows)


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
