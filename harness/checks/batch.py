"""`batch`: bursts are answered in full and agree with dcp=1; a size that is repeated says the same again."""

from __future__ import annotations

from harness.checks.asks import RequestGroup
from harness.checks.base import (
    BaselineUse,
    CheckContext,
    CheckResult,
    failed,
    passed,
    random_prompt,
)
from harness.checks.compare import Difference, beyond, compare, unfinished, worst
from harness.engines import Answer, GenerateRequest
from harness.suites import BatchParams

baseline_use = BaselineUse.REQUIRED

SHOWN = 3


def baseline_asks(params: BatchParams) -> list[RequestGroup]:
    return [_group(params, size) for size in dict.fromkeys(params.sizes)]


def run(params: BatchParams, context: CheckContext) -> CheckResult:
    baseline = context.need_baseline()
    faults: list[str] = []
    first: dict[int, list[Answer]] = {}
    places: list[Difference] = []
    for size in params.sizes:
        group = _group(params, size)
        answers = context.client.generate_batch(list(group))
        found, seen = _against(answers, baseline.of(group), group, params=params)
        faults += found
        places += seen
        if [a.tokens for a in first.setdefault(size, answers)] != [a.tokens for a in answers]:
            faults.append(f"batch of {size}: the second burst gave other tokens than the first")
    peak = worst(places)
    figures = {
        "sizes": list(params.sizes),
        "requests": sum(params.sizes),
        "max_logprob_gap": peak.gap if peak else None,
    }
    if faults:
        return failed("; ".join(faults[:SHOWN]), faults=faults, **figures)
    gap = f", logprobs within {peak.gap:.2g}" if peak else ""
    return passed(
        f"batches of {', '.join(map(str, params.sizes))} answered in full, tokens as dcp=1{gap}", **figures
    )


def _group(params: BatchParams, size: int) -> RequestGroup:
    """Prompts of ragged lengths around `prompt_len`, so that shards of a batch differ in length."""
    return tuple(
        GenerateRequest(
            input_ids=random_prompt(max(1, params.prompt_len - i % 5), seed=1000 + i),
            max_new_tokens=params.max_new_tokens,
        )
        for i in range(size)
    )


def _against(
    answers: list[Answer], reference: tuple[Answer, ...], group: RequestGroup, *, params: BatchParams
) -> tuple[list[str], list[Difference]]:
    """Sentences about one burst, and every compared place."""
    faults: list[str] = []
    places: list[Difference] = []
    parted: list[tuple[int, Difference]] = []
    for i, (answer, base, request) in enumerate(zip(answers, reference, group, strict=True)):
        if why := unfinished(answer, max_new_tokens=request.max_new_tokens):
            faults.append(f"batch of {len(group)}, request {i}: {why}")
        compared = compare(answer, base, prompt=request.input_ids)
        places += compared
        out = [p for p in compared if p.token_differs or beyond(p, bound=params.logprob)]
        if out:
            parted.append((i, out[0]))
    if len(parted) > params.mismatch_share * len(group):
        i, place = parted[0]
        faults.append(
            f"batch of {len(group)}: {len(parted)} answers differ from dcp=1 "
            f"(allowed share {params.mismatch_share:g}); first request {i}, {place.sentence()}"
        )
    return faults, places
