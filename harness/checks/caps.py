"""`caps`: the request cap is the aggregate one. Lengths around per-rank rows and around the aggregate.

A cap taken from per-rank rows refuses what fits; one that is too wide accepts what can never be scheduled.
Source of the limit: a request fits when ceil_page(input_len) + max_new_tokens + page < max_total_num_tokens,
page being the widened one; here pages are counted out one by one.
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
from harness.checks.compare import unfinished
from harness.engines import GenerateRequest, ServerInfo
from harness.errors import RequestRefusedError
from harness.suites import CapsParams

baseline_use = BaselineUse.NEVER


def baseline_asks(params: CapsParams) -> list[RequestGroup]:
    return []


def run(params: CapsParams, context: CheckContext) -> CheckResult:
    info = context.client.server_info()
    longest = longest_fitting(info, max_new_tokens=params.max_new_tokens)
    # The shortest prompt that the cap alone must refuse is one longer; the model has to take even that.
    if info.context_length is not None and info.context_length < longest + 1 + params.max_new_tokens:
        return unproven(
            f"the model's context of {info.context_length} tokens ends below the cap of {info.max_total_num_tokens}, "
            "so no single request can reach it; give the engine a smaller pool"
        )
    rows = info.max_total_num_tokens // info.dcp_size
    inside = sorted({n for n in (rows - 1, rows, rows + 1, longest - 1, longest) if 0 < n <= longest})
    outside = [longest + 1, info.max_total_num_tokens, info.max_total_num_tokens + 1]
    faults = [why for n in inside if (why := _must_answer(n, params, context))]
    faults += [why for n in outside if (why := _must_refuse(n, params, context))]
    if why := _must_answer(inside[0], params, context):
        faults.append(f"after the refusals: {why}")
    figures = {
        "per_rank_rows": rows,
        "max_total_num_tokens": info.max_total_num_tokens,
        "longest_fitting": longest,
        "answered": inside,
        "refused": outside,
    }
    if faults:
        return failed("; ".join(faults), **figures)
    return passed(
        f"lengths {inside} answered in full, {outside} refused "
        f"(rows per rank {rows}, aggregate {info.max_total_num_tokens})",
        **figures,
    )


def longest_fitting(info: ServerInfo, *, max_new_tokens: int) -> int:
    """The longest prompt that fits, by laying out one page after the other; 0 when none does."""
    page = info.widened_page_size
    longest = laid_out = 0
    while laid_out + page + max_new_tokens + page < info.max_total_num_tokens:
        laid_out += page
        longest = laid_out
    return longest


def _request(length: int, params: CapsParams) -> GenerateRequest:
    return GenerateRequest(input_ids=random_prompt(length, seed=length), max_new_tokens=params.max_new_tokens)


def _must_answer(length: int, params: CapsParams, context: CheckContext) -> str:
    try:
        answer = context.client.generate(_request(length, params))
    except RequestRefusedError as error:
        return f"a prompt of {length} fits and was refused: {error}"
    why = unfinished(answer, max_new_tokens=params.max_new_tokens)
    return f"a prompt of {length} fits and was answered with {why}" if why else ""


def _must_refuse(length: int, params: CapsParams, context: CheckContext) -> str:
    try:
        answer = context.client.generate(_request(length, params))
    except RequestRefusedError as error:
        return "" if 400 <= error.status < 500 else f"a prompt of {length} can never fit: {error}"
    return f"a prompt of {length} can never fit and was answered with {len(answer.tokens)} tokens"
