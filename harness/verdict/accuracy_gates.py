"""Every gate of an accuracy check over the evidence there is: p-value, limit, true alpha, drop found. Pure.

`accuracy` decides what they mean together. The maths is `gates`; here it is said which counts go into which
gate. The gates on finishing do not speak of accuracy: they ask whether more answers than before are cut off or
hold no number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

from harness.verdict.gates import (
    NEVER_FOUND,
    Noise,
    baseline_limit,
    baseline_p,
    drop_found,
    flips_found,
    flips_limit,
    flips_p,
    least_lost,
    paired_drop_found,
    paired_p,
)
from harness.verdict.sample import Paired, Sample, pair


class GateName(StrEnum):
    """What a gate compares."""

    SEQUENTIAL = "sequential"
    RECORDED = "recorded baseline"
    DROP = "paired drop"
    FLIPS = "paired flips"
    FINISHED_RECORDED = "finished as recorded"
    FINISHED_PAIRED = "finished as dcp=1"


ABOUT_FINISHING = frozenset({GateName.FINISHED_RECORDED, GateName.FINISHED_PAIRED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A recorded baseline: `correct` right answers among `scored` of `asked`, in `runs` over the same `questions`
    (None: no question was asked twice). `told` is its provenance for reports."""

    correct: int
    scored: int
    asked: int
    told: str
    runs: int = 1
    questions: int | None = None

    def over(self, n: int) -> Reference:
        """As much of it as may weigh where `n` questions are asked.

        Runs of a deterministic engine are copies of one another. Over the questions that were recorded that does
        no harm; of more questions they tell no more than one run does (5 runs of 200 held against 1,319 failed
        good engines thirty times too often).
        """
        if self.questions is None or n <= self.questions:
            return self
        scored = max(1, self.scored // self.runs)
        return replace(
            self,
            correct=self.correct * scored // self.scored,
            scored=scored,
            asked=round(self.asked * scored / self.scored),
        )


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything there is to judge by. `noise` is the A/A discordance: the flips between two good runs;
    `unfinished_noise` the same of answers that only one of the two finished."""

    engine: Sample
    baseline: Sample | None = None
    reference: Reference | None = None
    noise: Noise | None = None
    unfinished_noise: Noise | None = None

    @cached_property
    def paired(self) -> Paired | None:
        return None if self.baseline is None else pair(self.engine, self.baseline)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One gate's answer. `limit` says in words where it fails, `alpha` is its true false-alarm rate there,
    `drop` the drop in accuracy that it finds with the power asked for (None where it does not speak of
    accuracy). A sequential test says only whether it is below its alpha: its p is that, or 1."""

    name: GateName
    p: float
    limit: str
    alpha: float
    drop: float | None = None
    rejected: bool = False


def measure_gates(evidence: Evidence, *, alpha: float, power: float | None = None) -> tuple[Gate, ...]:
    """Every gate that applies. Limits, true alphas and drops are those of Holm's first and strictest step; without
    a `power` no drops are computed, which is most of the work."""
    names = _applicable(evidence)
    gates = [_MEASURES[name](evidence, alpha / len(names)) for name in names]
    if power is None:
        return tuple(gates)
    return tuple(
        gate
        if gate.name in ABOUT_FINISHING
        else replace(gate, drop=drop_of(gate.name, evidence, alpha=alpha / len(names), power=power))
        for gate in gates
    )


def drop_of(name: GateName, evidence: Evidence, *, alpha: float, power: float, n: int | None = None) -> float:
    """The drop that the gate finds with `power` at `alpha`, over `n` questions instead of those asked."""
    if name is GateName.RECORDED:
        reference = _reference(evidence).over(evidence.engine.asked if n is None else n)
        n = evidence.engine.scored if n is None else n
        limit = baseline_limit(n, correct=reference.correct, of=reference.scored, alpha=alpha)
        return drop_found(limit, n, p0=reference.correct / reference.scored, power=power)
    n = _paired(evidence).compared if n is None else n
    if name is GateName.DROP:
        noise = 0.0 if evidence.noise is None else evidence.noise.share
        drop = paired_drop_found(n, alpha=alpha, discordance=noise, power=power)
    else:
        drop = flips_found(n, evidence.noise, alpha=alpha, power=power)
    return drop if drop <= _baseline_accuracy(evidence) else NEVER_FOUND


def _baseline_accuracy(evidence: Evidence) -> float:
    """No more than this can be lost."""
    baseline = evidence.baseline
    return baseline.correct / baseline.scored if baseline and baseline.scored else 0.0


def count_gates(*, recorded: bool, paired: bool) -> int:
    """How many gates share the false alarms of one check."""
    return len(_names(recorded=recorded, paired=paired))


def _applicable(evidence: Evidence) -> list[GateName]:
    return _names(recorded=evidence.reference is not None, paired=evidence.baseline is not None)


def _names(*, recorded: bool, paired: bool) -> list[GateName]:
    names = [GateName.RECORDED, GateName.FINISHED_RECORDED] if recorded else []
    names += [GateName.DROP, GateName.FLIPS] if paired else []
    return names + ([GateName.FINISHED_PAIRED] if paired and not recorded else [])


def _recorded(evidence: Evidence, alpha: float) -> Gate:
    sample = evidence.engine
    reference = _reference(evidence).over(sample.asked)
    limit = baseline_limit(sample.scored, correct=reference.correct, of=reference.scored, alpha=alpha)
    return Gate(
        name=GateName.RECORDED,
        p=baseline_p(sample.correct, sample.scored, correct=reference.correct, of=reference.scored),
        limit=f"fails below {limit.fail_below} right",
        alpha=limit.alpha,
    )


def _finished_recorded(evidence: Evidence, alpha: float) -> Gate:
    """The share of answers that can be scored, gated as if it were a score."""
    sample = evidence.engine
    reference = _reference(evidence).over(sample.asked)
    answered = sample.scored + sample.unfinished
    limit = baseline_limit(answered, correct=reference.scored, of=reference.asked, alpha=alpha)
    return Gate(
        name=GateName.FINISHED_RECORDED,
        p=baseline_p(sample.scored, answered, correct=reference.scored, of=reference.asked),
        limit=f"fails below {limit.fail_below} that can be scored",
        alpha=limit.alpha,
    )


def _drop(evidence: Evidence, alpha: float) -> Gate:
    """Lost against gained answers fall like a fair coin where the engine is as good as its baseline."""
    paired = _paired(evidence)
    flips, lost = _least_losses(len(paired.flips), alpha)
    return Gate(
        name=GateName.DROP,
        p=paired_p(paired.lost, paired.gained),
        limit=f"fails from {lost} lost of {flips} flips on",
        alpha=paired_p(lost, flips - lost),
    )


def _least_losses(flips: int, alpha: float) -> tuple[int, int]:
    """(flips, lost) where the drop gate fails: among as many flips as there are, or else the fewest that can."""
    while (lost := least_lost(flips, alpha)) > flips:
        flips += 1
    return flips, lost


def _flips(evidence: Evidence, alpha: float) -> Gate:
    paired = _paired(evidence)
    limit = flips_limit(paired.compared, evidence.noise, alpha)
    return Gate(
        name=GateName.FLIPS,
        p=flips_p(len(paired.flips), paired.compared, evidence.noise),
        limit=f"fails from {limit.fail_from} flips on",
        alpha=limit.alpha,
    )


def _finished_paired(evidence: Evidence, alpha: float) -> Gate:
    """Answers that only the baseline finished, gated as flips are."""
    paired, noise = _paired(evidence), evidence.unfinished_noise
    n = paired.compared + len(paired.unfinished)
    limit = flips_limit(n, noise, alpha)
    return Gate(
        name=GateName.FINISHED_PAIRED,
        p=flips_p(paired.left_unfinished, n, noise),
        limit=f"fails from {limit.fail_from} answers on that only dcp=1 finished",
        alpha=limit.alpha,
    )


_MEASURES: dict[GateName, Callable[[Evidence, float], Gate]] = {
    GateName.RECORDED: _recorded,
    GateName.FINISHED_RECORDED: _finished_recorded,
    GateName.DROP: _drop,
    GateName.FLIPS: _flips,
    GateName.FINISHED_PAIRED: _finished_paired,
}


def _reference(evidence: Evidence) -> Reference:
    assert evidence.reference is not None, "a gate against a record is measured only where there is one"
    return evidence.reference


def _paired(evidence: Evidence) -> Paired:
    assert evidence.paired is not None, "a paired gate is measured only where there is a baseline"
    return evidence.paired
