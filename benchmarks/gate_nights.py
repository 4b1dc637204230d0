"""Simulated nights for `gates.py`: good engines that no gate may fail, and engines as bad as a gate says it finds.

Every function plays one setting and returns a `Row`. Limits and p-values come from the gates themselves, looked up
once for each count that occurs; NumPy draws the nights. A night has its own baseline wherever a gate has one, so
that the luck of a baseline is part of the false alarms, as it is in life.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from harness.verdict.gates import (
    Noise,
    TwoStage,
    baseline_limit,
    drop_found,
    exact_limit,
    flips_found,
    flips_limit,
    paired_drop_found,
    paired_p,
    recorded_noise,
    suspicion_limit,
    wilson,
)

Counts = Any  # a NumPy array with one number a night
ALPHA = 1e-3
POWER = 0.95
# A rate is called wrong when even the end of its interval that is on the gate's side is: one-sided 99.9 %.
CERTAINTY = 0.998
# The recorded baselines of `harness baseline record`: five runs or more.
RUNS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One setting of one gate, after `nights` nights of a good engine and as many of a bad one.

    `alarms` nights failed the good engine, `found` the bad one, which is None where a gate states no power there.
    `asked` is the mean number of questions for the good engine, where that varies.
    """

    gate: str
    setting: str
    nights: int
    alarms: int
    found: int | None = None
    alpha: float = ALPHA
    power: float = POWER
    asked: float | None = None

    @property
    def alarm_rate(self) -> tuple[float, float, float]:
        return self._rate(self.alarms)

    @property
    def found_rate(self) -> tuple[float, float, float] | None:
        return None if self.found is None else self._rate(self.found)

    @property
    def holds(self) -> bool:
        """Neither significantly more false alarms than stated, nor significantly less power."""
        found = self.found_rate
        return self.alarm_rate[1] <= self.alpha and (found is None or found[2] >= self.power)

    def _rate(self, count: int) -> tuple[float, float, float]:
        interval = wilson(count, self.nights, confidence=CERTAINTY)
        return count / self.nights, interval.low, interval.high


@dataclass(frozen=True, slots=True)
class Dice:
    """The chance of one row: its random numbers, and how many nights are played."""

    rng: np.random.Generator
    nights: int

    def scores(self, n: int, p: float | Counts) -> Counts:
        """Right answers of `n`, each night."""
        return self.rng.binomial(n, np.clip(p, 0.0, 1.0), self.nights)


def each(counts: Counts, told: Callable[[int], float]) -> Counts:
    """`told(count)` of every night's count, asked once for each count that occurs."""
    values, where = np.unique(counts, return_inverse=True)
    return np.array([told(int(value)) for value in values])[where]


def groups(counts: Counts) -> Iterator[tuple[int, int]]:
    """Each count that occurs and in how many nights."""
    values, nights = np.unique(counts, return_counts=True)
    yield from zip(values.tolist(), nights.tolist(), strict=True)


def total(hits: Counts) -> int:
    return int(np.count_nonzero(hits))


def exact(dice: Dice, *, n: int, p0: float) -> Row:
    limit = exact_limit(n, p0=p0, alpha=ALPHA)
    drop = drop_found(limit, n, p0=p0, power=POWER)
    return Row(
        gate="exact",
        setting=f"{n} questions, p0 {p0:g}: below {limit.fail_below}, drop {100 * drop:.1f}",
        nights=dice.nights,
        alpha=limit.alpha,
        alarms=total(dice.scores(n, p0) < limit.fail_below),
        found=total(dice.scores(n, p0 - drop) < limit.fail_below),
    )


def recorded(dice: Dice, *, n: int, questions: int, p0: float) -> Row:
    """A fresh baseline each night; the drop is one from the accuracy that was recorded."""
    of = RUNS * questions
    correct = dice.scores(of, p0)

    @cache
    def found(count: int) -> tuple[int, float]:
        limit = baseline_limit(n, correct=count, of=of, alpha=ALPHA)
        return limit.fail_below, drop_found(limit, n, p0=count / of, power=POWER)

    fail_below, drop = each(correct, lambda c: found(c)[0]), each(correct, lambda c: found(c)[1])
    return Row(
        gate="recorded",
        setting=f"{n} questions, {RUNS} x {questions} recorded, p0 {p0:g}: drop {100 * np.mean(drop):.1f}",
        nights=dice.nights,
        alarms=total(dice.scores(n, p0) < fail_below),
        found=total(dice.scores(n, correct / of - drop) < fail_below),
    )


def paired(dice: Dice, *, n: int, discordance: float) -> Row:
    drop = paired_drop_found(n, alpha=ALPHA, discordance=discordance, power=POWER)

    def fails(lost_share: float) -> int:
        gained_share = discordance / 2
        counts = dice.rng.multinomial(
            n, [lost_share, gained_share, 1 - lost_share - gained_share], dice.nights
        )
        keys = counts[:, 0] * (n + 1) + counts[:, 1]
        return total(each(keys, lambda key: paired_p(*divmod(key, n + 1))) <= ALPHA)

    return Row(
        gate="paired drop",
        setting=f"{n} questions, discordance {100 * discordance:g} %: drop {100 * drop:.1f}",
        nights=dice.nights,
        alarms=fails(discordance / 2),
        found=fails(discordance / 2 + drop),
    )


def slip_rate(discordance: float) -> float:
    """How often one run slips on a question, so that two runs differ in `discordance` of them: 2 s (1 - s)."""
    return float((1 - np.sqrt(1 - 2 * discordance)) / 2)


def noise_of_runs(dice: Dice, *, questions: int, shaky: int, slip: float) -> tuple[Counts, int]:
    """Flips of RUNS recorded runs each night, and how many comparisons they are among; `shaky` of the questions
    slip at all."""
    slips = dice.rng.multinomial(shaky, binomial_law(RUNS, slip), dice.nights)
    rarer = [_recorded([(RUNS - wrong, wrong)]).flips for wrong in range(RUNS + 1)]
    return slips @ np.array(rarer), _recorded([(RUNS, 0)] * questions).compared


def _recorded(questions: list[tuple[int, int]]) -> Noise:
    noise = recorded_noise(questions)
    if noise is None:
        raise SystemExit(f"no noise from {questions!r:.80}")
    return noise


def flips_against_record(dice: Dice, *, n: int, questions: int, discordance: float, torn: float = 1.0) -> Row:
    """The noise of RUNS recorded runs; `torn` is the share of questions that ever slip."""
    slip = slip_rate(discordance / torn)
    flips, compared = noise_of_runs(dice, questions=questions, shaky=round(questions * torn), slip=slip)

    def limit(count: int) -> float:
        return flips_limit(n, Noise(flips=count, compared=compared), ALPHA).fail_from

    def found(count: int) -> float:
        return flips_found(n, Noise(flips=count, compared=compared), alpha=ALPHA, power=POWER)

    fail_from = each(flips, limit)
    return Row(
        gate="flips, recorded",
        setting=f"{n} questions, {RUNS} x {questions} recorded, noise {100 * discordance:g} %"
        + (f" in {torn:.0%} of them" if torn < 1 else ""),
        nights=dice.nights,
        alarms=total(two_runs(dice, round(n * torn), slip) >= fail_from),
        found=total(dice.scores(n, each(flips, found)) >= fail_from),
    )


def flips_against_tonight(dice: Dice, *, n: int, runs: int, discordance: float) -> Row:
    """The baseline is asked `runs` times more tonight, and its slips count in all comparisons."""
    slip = slip_rate(discordance)
    slipped = dice.scores(n, slip)

    def differing(dice: Dice) -> Counts:
        return dice.rng.binomial(slipped, 1 - slip) + dice.rng.binomial(n - slipped, slip)

    noise = sum((differing(dice) for _ in range(runs)), np.zeros(dice.nights, dtype=int))
    fail_from = each(
        noise, lambda flips: flips_limit(n, Noise(flips=flips, compared=n * runs), ALPHA).fail_from
    )
    return Row(
        gate="flips, A/A tonight",
        setting=f"{n} questions, asked {runs} x again, noise {100 * discordance:g} %",
        nights=dice.nights,
        alarms=total(differing(dice) >= fail_from),
    )


def flips_unmeasured(dice: Dice, *, n: int, discordance: float) -> Row:
    limit = flips_limit(n, None, ALPHA)
    share = flips_found(n, None, alpha=ALPHA, power=POWER)
    return Row(
        gate="flips, unmeasured",
        setting=f"{n} questions, noise {100 * discordance:g} %: from {limit.fail_from}, "
        f"finds {100 * share:.1f} %",
        nights=dice.nights,
        alarms=total(dice.scores(n, discordance) >= limit.fail_from),
        found=total(dice.scores(n, share) >= limit.fail_from),
    )


def two_stage(dice: Dice, *, n: int, of: int, p0: float) -> Row:
    gate = TwoStage(
        first=n,
        total=of,
        suspicious_below=suspicion_limit(n, p0=p0),
        limit=exact_limit(of, p0=p0, alpha=ALPHA),
    )
    drop = gate.drop_found(p0=p0, power=POWER)

    def play(p: float) -> tuple[Counts, Counts]:
        first = dice.scores(n, p)
        goes_on = first < gate.suspicious_below
        return goes_on, goes_on & (first + dice.scores(of - n, p) < gate.limit.fail_below)

    goes_on, alarms = play(p0)
    return Row(
        gate="two-stage",
        setting=f"{n}, below {gate.suspicious_below} all {of}: drop {100 * drop:.1f}",
        nights=dice.nights,
        alarms=total(alarms),
        found=total(play(p0 - drop)[1]),
        asked=n + (of - n) * float(np.mean(goes_on)),
    )


def two_runs(dice: Dice, questions: int, slip: float) -> Counts:
    """Flips between two fresh runs, each slipping on its own."""
    slipped = dice.scores(questions, slip)
    return dice.rng.binomial(slipped, 1 - slip) + dice.rng.binomial(questions - slipped, slip)


def binomial_law(n: int, p: float) -> Counts:
    """P(k of n), by convolution: this side of the benchmark does not use the code under test."""
    law = np.ones(1)
    for _ in range(n):
        law = np.convolve(law, [1 - p, p])
    return law
