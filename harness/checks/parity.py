"""`parity`: sequential greedy answers equal those of dcp=1, token for token, with bounded logprob distance.

This is the primary gate: on a random-weight model in fp32 a healthy engine stays within 1e-5 nats, and every
known DCP fault that touches numbers moves some logprob by more than 5e-3.
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
)
from harness.checks.compare import Difference, beyond, compare, unfinished, worst
from harness.engines import GenerateRequest
from harness.suites import ParityParams

baseline_use = BaselineUse.REQUIRED

# Enough to see a pattern (every length? only ragged ones?) without flooding the report.
SHOWN = 5


def baseline_asks(params: ParityParams) -> list[RequestGroup]:
    return [(_request(params, length),) for length in params.lengths]


def run(params: ParityParams, context: CheckContext) -> CheckResult:
    baseline = context.need_baseline()
    every: list[Difference] = []
    bad: list[Difference] = []
    short: list[str] = []
    for group in baseline_asks(params):
        request = group[0]
        (reference,) = baseline.of(group)
        answer = context.client.generate(request)
        for who, found in (("engine", answer), ("baseline", reference)):
            if why := unfinished(found, max_new_tokens=request.max_new_tokens):
                short.append(f"prompt of {len(request.input_ids)}: {who} answered {why}")
        places = compare(answer, reference, prompt=request.input_ids)
        every += places
        bad += _findings(places, params=params)
    return _judge(every, bad, short, params=params, origin=baseline.origin)


def _request(params: ParityParams, length: int) -> GenerateRequest:
    return GenerateRequest(
        input_ids=random_prompt(length, seed=params.seed),
        max_new_tokens=params.max_new_tokens,
        prompt_logprobs=True,
    )


def _findings(places: list[Difference], *, params: ParityParams) -> list[Difference]:
    """The first place that is out of bounds, and the worst: where it began, and how bad it became."""
    out = [
        p for p in places if beyond(p, bound=params.logprob) or (p.token_differs and params.tokens == "exact")
    ]
    found = out[:1]
    peak = worst(out)
    if peak is not None and peak not in found:
        found.append(peak)
    return found


def _judge(
    every: list[Difference], bad: list[Difference], short: list[str], *, params: ParityParams, origin: str
) -> CheckResult:
    peak = worst(every)
    figures = {
        "prompts": len(params.lengths),
        "logprobs_compared": len(every),
        "max_logprob_gap": peak.gap if peak else None,
        "bound": params.logprob,
        "worst": peak.to_json() if peak else None,
        "baseline": origin,
    }
    if bad or short:
        lengths = sorted({place.length for place in bad})
        told = short[:SHOWN] + [place.sentence() for place in bad[:SHOWN]]
        head = (
            f"{len(lengths)} of {len(params.lengths)} prompts differ from dcp=1 (lengths {lengths}): "
            if bad
            else ""
        )
        return failed(
            head + "; ".join(told), differences=[p.to_json() for p in bad], unfinished=short, **figures
        )
    assert peak is not None
    return passed(
        f"{len(params.lengths)} prompts: tokens equal, {len(every)} logprobs within {peak.gap:.2g} of dcp=1 "
        f"(bound {params.logprob:g}; baseline {origin})",
        **figures,
    )
