"""How an accuracy check is told: one line for the whole, one for each gate, one for each flipped question.

Every line begins with the task's label, so that no line of a report on *sums* can be taken for GSM8K. The
first line is the summary; figures hold the same for machines, with both answers of every flip in full.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.checks.accuracy_study import Asking
from harness.checks.answer_text import quote
from harness.verdict import QuestionOutcome
from harness.verdict.accuracy import Judgement, drop_in_words, points, unfinished
from harness.verdict.accuracy_gates import Gate, GateName
from harness.verdict.gates import wilson
from harness.verdict.sample import Flip
from harness.verdict.watch import StopReason

# Enough flips to see what they have in common; all are in the figures and in the ledger.
FLIPS_SHOWN = 5
# Of an answer that is shown: its last words, where the number stands.
ANSWER_SHOWN = 60


def tell(asking: Asking, judgement: Judgement) -> str:
    """The message of the result."""
    lines = [_summary(asking, judgement), *_gates(asking, judgement), *_flips(asking)]
    return "\n".join(f"{asking.study.plan.label}: {line}" for line in lines)


def figures_of(asking: Asking, judgement: Judgement) -> dict[str, Any]:
    """The figures of the result; JSON values."""
    sample, paired, study = asking.engine, asking.evidence.paired, asking.study
    interval = wilson(sample.correct, sample.scored)
    whole = asking.whole
    return {
        "task": study.plan.label,
        "asked": sample.asked,
        "scored": sample.scored,
        "correct": sample.correct,
        # A count at which asking stopped is biased: no accuracy is made of it.
        "accuracy": sample.correct / sample.scored if sample.scored and whole else None,
        "wilson_95": [interval.low, interval.high] if whole else None,
        "truncated": sample.count(QuestionOutcome.TRUNCATED),
        "unparsable": sample.count(QuestionOutcome.UNPARSABLE),
        "failed_requests": sample.count(QuestionOutcome.ERROR),
        "stopped": None if whole else str(asking.watch.reason),
        "drop_found": judgement.found,
        "effect": study.params.effect,
        "alpha": study.alpha,
        "gates": [_gate_json(gate) for gate in judgement.gates],
        "recorded": study.recorded.told if study.recorded else study.why_no_record,
        "baseline": study.origin,
        "baseline_correct": None if asking.baseline is None else asking.baseline.correct,
        "questions_digest": study.plan.digest_of_questions,
        "flips": [] if paired is None else [flip.to_json() for flip in paired.flips],
        "finished_by_one": [] if paired is None else [flip.to_json() for flip in paired.unfinished],
    }


def _summary(asking: Asking, judgement: Judgement) -> str:
    parts = [judgement.why] if judgement.why else []
    apart = [told for told in _apart(asking) if told not in judgement.why]
    return "; ".join([*parts, _score(asking), *apart, *_missing(asking)])


def _score(asking: Asking) -> str:
    sample, paired = asking.engine, asking.evidence.paired
    reason = asking.watch.reason
    if not asking.whole:
        what = "fine" if reason is StopReason.FINE else "no more was needed"
        return (
            f"{what}, stopped after {sample.asked} of {len(asking.study.first.items)} questions "
            f"({sample.correct} of {sample.scored} right, which is no accuracy: a stopped count is biased)"
        )
    interval = wilson(sample.correct, sample.scored)
    told = f"{sample.correct} of {sample.scored} right"
    if sample.scored:
        told += (
            f" = {_share(sample.correct / sample.scored)} [{_share(interval.low)}, {_share(interval.high)}]"
        )
    if paired is not None and asking.baseline is not None:
        told += f", dcp=1 {asking.baseline.correct} of {asking.baseline.scored}, {_flips_in_words(len(paired.flips))}"
    return told


def _apart(asking: Asking) -> Iterator[str]:
    """What is counted apart, where there is any, and what the data had to say."""
    sample, plan = asking.engine, asking.study.plan
    if sample.unfinished:
        yield unfinished(sample)
    if sample.count(QuestionOutcome.TRUNCATED):
        yield f"the limit is {plan.max_new_tokens} tokens (max_new_tokens)"
    if asking.baseline is not None and asking.baseline.unfinished:
        yield f"dcp=1: {unfinished(asking.baseline)}"
    # To ask for all 1,319 is the usual way to say "all that are no shots".
    if plan.short_by > plan.shots:
        there = len(plan.items)
        yield f"only {there} of the {there + plan.short_by} questions asked for are there, without the shots"
    yield from plan.notes


def _missing(asking: Asking) -> Iterator[str]:
    if asking.study.recorded is None:
        yield asking.study.why_no_record


def _gates(asking: Asking, judgement: Judgement) -> Iterator[str]:
    for gate in judgement.gates:
        told = f"{'✘ ' if gate.rejected else ''}{gate.name.value}: {gate.limit} (alpha {gate.alpha:.2g})"
        if gate.name is not GateName.SEQUENTIAL:
            told += f", p {gate.p:.2g}"
        if gate.drop is not None:
            told += f", finds {drop_in_words(gate.drop)} with 95 % power"
        yield f"{told}; {_provenance(gate, asking)}"
    if judgement.found is not None and judgement.found < min(
        (gate.drop for gate in judgement.gates if gate.drop is not None), default=1.0
    ):
        yield (
            f"with the second stage of {len(asking.study.plan.items)} questions, asked when the first is "
            f"suspicious: finds a drop of {points(judgement.found)}"
        )


def _provenance(gate: Gate, asking: Asking) -> str:
    study, noise, what = asking.study, asking.evidence.noise, "flips"
    if gate.name in (GateName.RECORDED, GateName.FINISHED_RECORDED, GateName.SEQUENTIAL):
        assert study.recorded is not None
        return study.recorded.told
    against = f"dcp=1 {study.origin}"
    if gate.name is GateName.DROP:
        return against
    if gate.name is GateName.FINISHED_PAIRED:
        noise, what = asking.evidence.unfinished_noise, "finished once only"
    if noise is None:
        return f"{against}; A/A not measured"
    return f"{against}; A/A {noise.flips} {what} of {noise.compared}"


def _flips(asking: Asking) -> Iterator[str]:
    paired = asking.evidence.paired
    if paired is None:
        return
    both = [*paired.flips, *paired.unfinished]
    for flip in both[:FLIPS_SHOWN]:
        yield _flip(flip)
    if len(both) > FLIPS_SHOWN:
        yield f"{len(both) - FLIPS_SHOWN} more: in the JSON report, and by harness show RUN JOB --questions"


def _flip(flip: Flip) -> str:
    return (
        f"question {flip.engine.question}: expected {flip.engine.expected}; "
        f"dcp=1 {_answer(flip.baseline.answer, flip.baseline.outcome, flip.baseline.text)}; "
        f"here {_answer(flip.engine.answer, flip.engine.outcome, flip.engine.text)}"
    )


def _answer(answer: str | None, outcome: QuestionOutcome, text: str) -> str:
    told = answer if answer is not None else outcome.value
    cut = "…" if len(text) > ANSWER_SHOWN else ""
    return f"{told} ({cut}{quote(text[-ANSWER_SHOWN:])})"


def _gate_json(gate: Gate) -> dict[str, Any]:
    return {
        "name": gate.name.value,
        "p": gate.p,
        "limit": gate.limit,
        "alpha": gate.alpha,
        "drop_found": gate.drop,
        "rejected": gate.rejected,
    }


def _flips_in_words(count: int) -> str:
    return f"{count} flip{'s' * (count != 1)}"


def _share(share: float) -> str:
    """`.985`, as the field writes accuracies."""
    return f"{share:.3f}".removeprefix("0")
