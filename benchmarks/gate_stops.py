"""Simulated nights of the sequential gates and of several gates together, for `gates.py`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from gate_nights import ALPHA, POWER, RUNS, Dice, Row, each, groups, noise_of_runs, slip_rate

from harness.verdict.gates import (
    EarlyStop,
    Noise,
    Sprt,
    SprtVerdict,
    baseline_limit,
    baseline_p,
    drop_found,
    early_stop,
    early_stop_recorded,
    exact_limit,
    exact_p,
    flips_p,
    holm,
    paired_p,
)

MakeSprt = Callable[[], Sprt]


class Walk:
    """Where a sequential test stops, as bounds on the wrong answers at each look, found by asking it."""

    def __init__(self, make: MakeSprt, *, n: int, batch: int, stop_when_fine: bool = True) -> None:
        self.looks = [min(n, end) for end in range(batch, n + batch, batch)]
        self.broken_from = [
            _first_wrong(make, asked, lambda said: said is SprtVerdict.BROKEN) for asked in self.looks
        ]
        self.fine_below = [
            _first_wrong(make, asked, lambda said: said is not SprtVerdict.FINE) if stop_when_fine else 0
            for asked in self.looks
        ]

    def play(self, rng: np.random.Generator, *, p: float, nights: int) -> tuple[int, int, Any]:
        """Nights called broken, questions asked in all nights, and the wrong answers of the undecided nights."""
        wrong = np.zeros(nights, dtype=int)
        before = asked_in_all = broken = 0
        for asked, broken_from, fine_below in zip(self.looks, self.broken_from, self.fine_below, strict=True):
            asked_in_all += (asked - before) * len(wrong)
            wrong = wrong + rng.binomial(asked - before, 1 - p, len(wrong))
            broken += int(np.count_nonzero(wrong >= broken_from))
            wrong = wrong[(wrong < broken_from) & (wrong >= fine_below)]
            before = asked
        return broken, asked_in_all, wrong


def _first_wrong(make: MakeSprt, asked: int, holds: Callable[[SprtVerdict], bool]) -> int:
    """The fewest wrong answers of `asked` for which the verdict `holds`; one more than there are where none do."""
    low, high = 0, asked + 1
    while low < high:
        middle = (low + high) // 2
        if holds(make().update(asked - middle, middle)):
            high = middle
        else:
            low = middle + 1
    return low


def stopped_early(
    dice: Dice, *, n: int, batch: int, p0: float, stop_when_fine: bool, questions: int | None
) -> Row:
    """An SPRT after each batch and a gate at the end, against a known accuracy or RUNS x `questions` recorded."""

    def gate_for(correct: int) -> EarlyStop:
        gate = (
            early_stop(n, p0=p0, alpha=ALPHA, power=POWER)
            if questions is None
            else early_stop_recorded(n, correct=correct, of=RUNS * questions, alpha=ALPHA, power=POWER)
        )
        if gate is None:
            raise SystemExit(f"no early stop for {correct} right of {RUNS} x {questions}")
        return gate

    baselines = np.zeros(dice.nights, dtype=int) if questions is None else dice.scores(RUNS * questions, p0)
    alarms = found = asked = 0
    for correct, nights in groups(baselines):
        gate = gate_for(correct)
        walk = Walk(gate.sprt, n=n, batch=batch, stop_when_fine=stop_when_fine)
        failed, questions_asked = _fails(dice.rng, walk, gate, n=n, p=p0, nights=nights)
        alarms, asked = alarms + failed, asked + questions_asked
        found += _fails(dice.rng, walk, gate, n=n, p=gate.p1, nights=nights)[0]
    against = "known" if questions is None else f"{RUNS} x {questions} recorded"
    return Row(
        gate="SPRT and final gate",
        setting=f"{n} in batches of {batch}, {against}, stops when "
        + ("fine or broken" if stop_when_fine else "broken"),
        nights=dice.nights,
        alarms=alarms,
        found=found,
        asked=asked / dice.nights,
    )


def _fails(
    rng: np.random.Generator, walk: Walk, gate: EarlyStop, *, n: int, p: float, nights: int
) -> tuple[int, int]:
    broken, asked, undecided = walk.play(rng, p=p, nights=nights)
    return broken + int(np.count_nonzero(n - undecided < gate.limit.fail_below)), asked


def mean_asked(dice: Dice, *, n: int, p0: float, p1: float, p: float) -> float:
    """Questions asked on average when each answer is looked at, with half of alpha and a beta of 5 %."""
    walk = Walk(lambda: Sprt(p0, p1, ALPHA / 2, 0.05), n=n, batch=1)
    return walk.play(dice.rng, p=p, nights=dice.nights)[1] / dice.nights


def holm_of_one_sample(dice: Dice, *, n: int, questions: int, p0: float, discordance: float) -> Row:
    """The three gates of one run, which all look at the same answers; the bad engine drops by what the recorded
    gate finds at Holm's first step."""
    of, slip = RUNS * questions, slip_rate(discordance)
    correct = dice.scores(of, p0)
    noise, compared = noise_of_runs(dice, questions=questions, shaky=questions, slip=slip)

    def drop_of(count: int) -> float:
        limit = baseline_limit(n, correct=count, of=of, alpha=ALPHA / 3)
        return drop_found(limit, n, p0=count / of, power=POWER)

    def failed_nights(drop: Any) -> int:
        gained = np.full(dice.nights, discordance / 2)
        lost = gained + drop
        shares = np.stack([p0 - lost, gained, lost, 1 - p0 - gained], axis=1)
        counts = dice.rng.multinomial(n, shares).tolist()
        return sum(
            any(holm(_family(night, correct=k, of=of, noise=a, compared=compared), ALPHA).values())
            for night, k, a in zip(counts, correct.tolist(), noise.tolist(), strict=True)
        )

    return Row(
        gate="Holm, one sample",
        setting=f"recorded, drop and flips; {n} questions, noise {100 * discordance:g} %",
        nights=dice.nights,
        alarms=failed_nights(0.0),
        found=failed_nights(p0 - correct / of + each(correct, drop_of)),
    )


def _family(night: list[int], *, correct: int, of: int, noise: int, compared: int) -> dict[str, float]:
    both, gained, lost, _ = night
    n = sum(night)
    return {
        "recorded": _recorded_p(both + gained, n, correct, of),
        "drop": _drop_p(lost, gained),
        "flips": _flips_p(lost + gained, n, noise, compared),
    }


@cache
def _recorded_p(right: int, n: int, correct: int, of: int) -> float:
    return baseline_p(right, n, correct=correct, of=of)


@cache
def _drop_p(lost: int, gained: int) -> float:
    return paired_p(lost, gained)


@cache
def _flips_p(flips: int, n: int, noise: int, compared: int) -> float:
    return flips_p(flips, n, Noise(flips=noise, compared=compared))


def holm_of_suites(dice: Dice, *, gates: int, n: int, p0: float) -> Row:
    """Gates of as many suites; in the bad nights one of them drops, and an alarm of another is still false."""
    drop = drop_found(exact_limit(n, p0=p0, alpha=ALPHA / gates), n, p0=p0, power=POWER)
    p_of = [exact_p(x, n, p0=p0) for x in range(n + 1)]

    def nights(first: float) -> list[dict[str, bool]]:
        accuracies = [first] + [p0] * (gates - 1)
        scores = np.stack([dice.scores(n, p) for p in accuracies], axis=1).tolist()
        return [holm({str(i): p_of[x] for i, x in enumerate(night)}, ALPHA) for night in scores]

    good, bad = nights(p0), nights(p0 - drop)
    wrongly = sum(any(found for name, found in night.items() if name != "0") for night in bad)
    return Row(
        gate=f"Holm, {gates} suites",
        setting=f"{n} questions each: drop {100 * drop:.1f} in one of them",
        nights=dice.nights,
        alarms=max(sum(any(night.values()) for night in good), wrongly),
        found=sum(night["0"] for night in bad),
    )
