"""The published numbers of the gates, each computed anew, for `gates.py`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from gate_nights import ALPHA, POWER, Dice
from gate_stops import mean_asked

from harness.verdict.gates import (
    TwoStage,
    baseline_limit,
    drop_found,
    exact_limit,
    paired_drop_found,
    suspicion_limit,
)

P0 = 0.94
# Mean questions of the SPRT by (questions, p1), for a fine engine, a broken one and one that writes garbage.
SPRT_MEANS = {(200, 0.835): (59.4, 36.0, 8.2), (1319, 0.9054): (375.0, 70.0, 17.3)}
SPRT_ENGINES = {"fine": P0, "broken": 0.70, "garbage": 0.02}
# Published with two or three digits. A mean of this many nights is sharper than that, whatever --nights says.
SPRT_TOLERANCE, SPRT_NIGHTS = 0.02, 100_000
# fail_below of n questions by how many were recorded
BETA_BINOMIAL = {200: {200: 169, 1319: 175, 6595: 176}, 1319: {200: 1146, 1319: 1198, 6595: 1209}}
# Drop in points by the discordance of two good runs
PAIRED = {
    200: {0.0: 7.7, 0.01: 10.0, 0.02: 11.3, 0.04: 13.1, 0.08: 15.7},
    1319: {0.0: 1.2, 0.01: 2.3, 0.02: 2.8, 0.04: 3.6, 0.08: 4.6},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A published number and what comes out now, equal within `tolerance` of it, or of its last digit."""

    name: str
    published: float
    now: float
    tolerance: float

    @property
    def holds(self) -> bool:
        return abs(self.now - self.published) <= self.tolerance


def computed() -> Iterator[Fact]:
    """Those that need no simulation."""
    yield from _exact(200, fail_below=176, alpha=4.4e-4, p1=0.8354)
    yield from _exact(1319, fail_below=1212, alpha=8.3e-4, p1=0.9054)
    for n, by_size in BETA_BINOMIAL.items():
        for of, published in by_size.items():
            limit = baseline_limit(n, correct=round(P0 * of), of=of, alpha=ALPHA)
            name = f"recorded, {n} questions, {of} recorded: fails below"
            yield Fact(name=name, published=published, now=limit.fail_below, tolerance=0)
    for n, by_discordance in PAIRED.items():
        for discordance, published in by_discordance.items():
            drop = paired_drop_found(n, alpha=ALPHA, discordance=discordance, power=POWER)
            name = f"paired drop, {n} questions, discordance {100 * discordance:g} %: points"
            yield Fact(name=name, published=published, now=100 * drop, tolerance=0.051)
    yield from _two_stage()


def simulated(rng: np.random.Generator) -> Iterator[Fact]:
    """The mean number of questions that the SPRT asks."""
    dice = Dice(rng, SPRT_NIGHTS)
    for (n, p1), means in SPRT_MEANS.items():
        for (engine, p), published in zip(SPRT_ENGINES.items(), means, strict=True):
            now = mean_asked(dice, n=n, p0=P0, p1=p1, p=p)
            name = f"SPRT, at most {n} questions, {engine} ({p:.2f}): mean asked"
            yield Fact(name=name, published=published, now=now, tolerance=SPRT_TOLERANCE * published)


def _exact(n: int, *, fail_below: int, alpha: float, p1: float) -> Iterator[Fact]:
    limit = exact_limit(n, p0=P0, alpha=ALPHA)
    lowest = P0 - drop_found(limit, n, p0=P0, power=POWER)
    yield Fact(
        name=f"exact, {n} questions: fails below", published=fail_below, now=limit.fail_below, tolerance=0
    )
    yield Fact(name=f"exact, {n} questions: true alpha", published=alpha, now=limit.alpha, tolerance=0.5e-5)
    yield Fact(
        name=f"exact, {n} questions: accuracy found with 95 %", published=p1, now=lowest, tolerance=5e-5
    )


def _two_stage() -> Iterator[Fact]:
    gate = TwoStage(
        first=200,
        total=1319,
        suspicious_below=suspicion_limit(200, p0=P0),
        limit=exact_limit(1319, p0=P0, alpha=ALPHA),
    )
    yield Fact(name="two-stage: screen", published=185, now=gate.suspicious_below, tolerance=0)
    yield Fact(name="two-stage: false alarms", published=5.2e-4, now=gate.fails(P0), tolerance=0.5e-5)
    yield Fact(name="two-stage: mean asked", published=367, now=gate.asked(P0), tolerance=0.6)
    yield Fact(
        name="two-stage: points", published=5.3, now=100 * gate.drop_found(p0=P0, power=POWER), tolerance=0.051
    )  # fmt: skip
