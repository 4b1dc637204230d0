"""`capacity`: the aggregate cap is the rows that really exist, and grows against dcp=1 as row bytes say.

Source of the rule: rows per rank come from bytes, the cap is rows × dcp, and GQA replicates KV heads inside a
DCP group, so dcp=N holds N · row_bytes(1) / row_bytes(N) times the tokens of dcp=1.
"""

from __future__ import annotations

from harness.checks.asks import RequestGroup
from harness.checks.base import (
    BaselineUse,
    CheckContext,
    CheckResult,
    MissingBaselineError,
    failed,
    passed,
    unproven,
)
from harness.engines import ServerInfo
from harness.suites import CapacityParams

baseline_use = BaselineUse.REQUIRED


def baseline_asks(params: CapacityParams) -> list[RequestGroup]:
    return []


def run(params: CapacityParams, context: CheckContext) -> CheckResult:
    ours, base = context.client.server_info(), context.need_baseline().info
    if base is None:
        raise MissingBaselineError("the dcp=1 engine tells nothing of its capacity")
    if ours.ranks is None or base.ranks is None:
        return unproven("the engine tells no KV rows per rank, so its capacity cannot be proven")
    faults = _own_faults(ours) + _own_faults(base)
    if not faults and (ours.capped_by_argument or base.capped_by_argument):
        return unproven(
            f"max_total_num_tokens {ours.max_total_num_tokens} (dcp 1: {base.max_total_num_tokens}) was set by "
            "an argument, so that row bytes decide it cannot be seen; give the pool its bytes instead"
        )
    expected = (
        base.max_total_num_tokens * ours.dcp_size * base.ranks[0].kv_row_bytes / ours.ranks[0].kv_row_bytes
    )
    # Whole pages on both sides: each may lose up to one page of rows to rounding.
    slack = ours.widened_page_size + base.widened_page_size * expected / base.max_total_num_tokens
    if abs(ours.max_total_num_tokens - expected) > slack:
        faults.append(
            f"max_total_num_tokens is {ours.max_total_num_tokens} at dcp {ours.dcp_size} and "
            f"{base.max_total_num_tokens} at dcp {base.dcp_size}; row bytes {ours.ranks[0].kv_row_bytes} and "
            f"{base.ranks[0].kv_row_bytes} call for {expected:.0f} ± {slack:.0f}"
        )
    figures = {
        "max_total_num_tokens": ours.max_total_num_tokens,
        "baseline_max_total_num_tokens": base.max_total_num_tokens,
        "ratio": ours.max_total_num_tokens / base.max_total_num_tokens,
        "row_bytes": ours.ranks[0].kv_row_bytes,
        "baseline_row_bytes": base.ranks[0].kv_row_bytes,
    }
    if faults:
        return failed("; ".join(faults), **figures)
    return passed(
        f"{ours.max_total_num_tokens} tokens at dcp {ours.dcp_size}, {base.max_total_num_tokens} at dcp 1: "
        f"× {figures['ratio']:.2f}, as row bytes say",
        **figures,
    )


def _own_faults(info: ServerInfo) -> list[str]:
    ranks = info.ranks or ()
    rows = {rank.kv_rows for rank in ranks}
    if len(rows) != 1:
        return [f"ranks hold different numbers of KV rows: {sorted(rows)}"]
    (per_rank,) = rows
    if per_rank * info.dcp_size != info.max_total_num_tokens:
        return [
            f"max_total_num_tokens {info.max_total_num_tokens} is not {per_rank} rows × dcp {info.dcp_size}"
        ]
    return []
