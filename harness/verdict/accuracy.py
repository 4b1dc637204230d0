"""The judgement of one accuracy check: which gates apply, what each says, and what they say together. Pure.

Phases: what is no answer at all is told first and never counts as wrong (failed requests, answers cut off or
without a number); then every gate that has something to compare with gives a p-value; Holm decides which of
them are findings; and a pass counts only where some gate could have found the declared effect.
Failure rule: nothing to compare with is `unproven`, too few questions are `underpowered`, never a pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.verdict.accuracy_gates import ABOUT_FINISHING, Evidence, Gate, GateName, drop_of, measure_gates
from harness.verdict.gates import NEVER_FOUND, holm
from harness.verdict.outcomes import CheckOutcome
from harness.verdict.questions import QuestionOutcome
from harness.verdict.sample import Sample
from harness.verdict.watch import Stop, StopReason

# What a gate must find with this probability to be said to find it.
POWER = 0.95
# Of two stages each may miss half of what both together may miss.
STAGE_POWER = 1 - (1 - POWER) / 2
# A first stage whose p-value is below this goes on to all questions; a good engine does so about as often.
# With 200 questions and a baseline of .94 it means fewer than 185 right.
SUSPICIOUS_P = 0.15
# Without anything to compare with, more answers than this that cannot be scored leave no score to speak of.
UNFINISHED_SHARE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What is asked of the gates: the false alarms allowed to all of them together, and the drop to be found."""

    alpha: float
    effect: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """`why` is one clause; `found` is the drop that is found with 95 % power, None where no gate applies."""

    outcome: CheckOutcome
    why: str
    gates: tuple[Gate, ...]
    found: float | None


def judge_accuracy(
    evidence: Evidence, demand: Demand, *, stop: Stop | None = None, planned: int | None = None
) -> Judgement:
    """Judge what was asked. `stop` tells of a sequential test that ended the asking; `planned` is how many
    questions a second stage would have asked: a drop may be found there that the first stage only suspects.
    """
    gates = _decided(measure_gates(evidence, alpha=demand.alpha, power=POWER), alpha=demand.alpha)
    if stop is not None:
        sequential = _sequential(stop, evidence, alpha=demand.alpha / len(gates))
        gates = (sequential, *(gate for gate in gates if gate.name is not GateName.RECORDED))
    found = _found(gates, evidence, demand, planned=planned)
    outcome, why = _judge(evidence, gates, found=found, effect=demand.effect)
    return Judgement(outcome=outcome, why=why, gates=gates, found=found)


def suspicious(evidence: Evidence) -> bool:
    """Whether the first stage must be followed by all questions: a gate alone would doubt it at 15 %."""
    gates = measure_gates(evidence, alpha=SUSPICIOUS_P)
    return any(gate.p <= SUSPICIOUS_P for gate in gates)


def _decided(gates: Sequence[Gate], *, alpha: float) -> tuple[Gate, ...]:
    rejected = holm({gate.name.value: gate.p for gate in gates}, alpha)
    return tuple(replace(gate, rejected=rejected[gate.name.value]) for gate in gates)


def _sequential(stop: Stop, evidence: Evidence, *, alpha: float) -> Gate:
    """A stop as a gate: it stands for the recorded baseline, which it was tested against.

    A bad engine is missed by the test or by the recorded gate at the end, which has `alpha` there: by each in half
    of the nights allowed to both.
    """
    at_end = drop_of(GateName.RECORDED, evidence, alpha=alpha, power=STAGE_POWER, n=stop.questions)
    return Gate(
        name=GateName.SEQUENTIAL,
        p=stop.alpha if stop.reason is StopReason.BROKEN else 1.0,
        limit=f"accuracy {stop.test.p0:.3f} against {stop.test.p1:.3f}, looked at after each batch",
        alpha=stop.alpha,
        drop=max(stop.test.drop, at_end),
        rejected=stop.reason is StopReason.BROKEN,
    )


def _found(gates: Sequence[Gate], evidence: Evidence, demand: Demand, *, planned: int | None) -> float | None:
    """The smallest drop that some gate finds, in the first stage or by going on to the second."""
    speaking = [gate for gate in gates if gate.drop is not None]
    drops = [gate.drop for gate in speaking if gate.drop is not None]
    if planned is not None and planned > evidence.engine.asked:
        for gate in speaking:
            if gate.name is not GateName.SEQUENTIAL:
                first = drop_of(gate.name, evidence, alpha=SUSPICIOUS_P, power=STAGE_POWER)
                share = demand.alpha / len(gates)
                second = drop_of(gate.name, evidence, alpha=share, power=STAGE_POWER, n=planned)
                drops.append(max(first, second))
    return min(drops, default=None)


def _judge(
    evidence: Evidence, gates: Sequence[Gate], *, found: float | None, effect: float
) -> tuple[CheckOutcome, str]:
    sample = evidence.engine
    if failed := sample.of(QuestionOutcome.ERROR):
        return CheckOutcome.FAILED, (
            f"{len(failed)} of {sample.asked} requests failed, which says nothing of accuracy; "
            f"first: question {failed[0].question}: {failed[0].error}"
        )
    if rejected := [gate for gate in gates if gate.rejected]:
        return CheckOutcome.FAILED, "; ".join(_finding(gate, evidence) for gate in rejected)
    if found is None and sample.unfinished > UNFINISHED_SHARE * sample.asked:
        return CheckOutcome.UNPROVEN, f"{unfinished(sample)}: no score to speak of, and no accuracy failure"
    if sample.scored == 0:
        return CheckOutcome.UNPROVEN, f"no answer could be scored: {unfinished(sample)}"
    if found is None:
        return CheckOutcome.UNPROVEN, "no gate: no recorded baseline and no dcp=1 run to compare with"
    if found > effect or found == NEVER_FOUND:
        return CheckOutcome.UNDERPOWERED, (
            f"{sample.scored} questions find {drop_in_words(found)} with 95 % power, "
            f"and {points(effect)} must be found: ask more questions, or declare a larger effect"
        )
    return CheckOutcome.PASSED, ""


def _finding(gate: Gate, evidence: Evidence) -> str:
    sample, paired = evidence.engine, evidence.paired
    if gate.name in ABOUT_FINISHING:
        than = "" if paired is None else f", where dcp=1 answers {_as_told(evidence.baseline)}"
        return f"{unfinished(sample)}{than}: no accuracy failure, they are not scored"
    if gate.name is GateName.RECORDED:
        assert evidence.reference is not None
        return f"{sample.correct} of {sample.scored} right is too few for {evidence.reference.told}"
    if gate.name is GateName.SEQUENTIAL:
        return f"{sample.correct} of {sample.scored} right: broken, asking stopped there"
    assert paired is not None
    if gate.name is GateName.DROP:
        return f"{paired.lost} answers lost and {paired.gained} gained against dcp=1"
    ways = f"{paired.lost} lost, {paired.gained} gained"
    return f"{len(paired.flips)} of {paired.compared} answers flipped against dcp=1 ({ways})"


def unfinished(sample: Sample) -> str:
    """`41 of 200 answers cut off, 2 without a number`."""
    cut, bare = sample.count(QuestionOutcome.TRUNCATED), sample.count(QuestionOutcome.UNPARSABLE)
    return f"{cut} of {sample.asked} answers cut off, {bare} without a number"


def _as_told(baseline: Sample | None) -> str:
    assert baseline is not None
    return f"{baseline.scored} of {baseline.asked} in full"


def drop_in_words(drop: float) -> str:
    """`a drop of 3.9 points`, `no drop`."""
    return "no drop" if drop == NEVER_FOUND else f"a drop of {points(drop)}"


def points(drop: float) -> str:
    """A difference of two accuracies: `3.9 points`."""
    return f"{100 * drop:.1f} points"
