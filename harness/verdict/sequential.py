"""Stopping early: after each batch, is the engine already shown broken, or fine, or is more needed?

`Sprt` may stop long before the last question and spends its own part of alpha for it. `curtail` stops only
where the rest cannot change the fixed gate's verdict and spends nothing. Batches must be whole and in the fixed
order of the questions: short, easy answers finish first, and a score of what happens to be there is biased.
For the same reason an early stop says "fine, stopped at k", never an accuracy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from harness.verdict.arguments import require_count, require_level
from harness.verdict.distributions import Binomial
from harness.verdict.limits import Limit, baseline_limit, drop_found, exact_limit
from harness.verdict.search import first_share


class SprtVerdict(StrEnum):
    """What is known after the questions asked so far."""

    UNDECIDED = "undecided"
    BROKEN = "broken"
    FINE = "fine"


class Sprt:
    """Wald's sequential probability ratio test of accuracy `p0` (fine) against `p1` < p0 (broken).

    S = right * log(p1 / p0) + wrong * log((1 - p1) / (1 - p0)). Broken from log((1 - beta) / alpha) on: a fine
    engine gets there with probability alpha at most; fine from log(beta / (1 - alpha)) down: an engine of
    accuracy p1 gets there with probability beta at most. Looking after whole batches only costs no error.

    Undecided after the last question, the fixed gate decides, and that is a second chance for a false alarm:
    give half of alpha to each (`early_stop` does so). State: `right` and `wrong`, as counted so far.
    """

    def __init__(self, p0: float, p1: float, alpha: float, beta: float) -> None:
        self.p0 = require_level("p0", p0)
        self.p1 = require_level("p1", p1)
        if p1 >= p0:
            raise ValueError(f"p1 is {p1}, allowed: below p0, which is {p0}")
        require_level("alpha", alpha)
        require_level("beta", beta)
        if alpha + beta >= 1.0:
            raise ValueError(f"alpha and beta are {alpha} and {beta}, allowed: less than 1 together")
        self.broken_at = math.log((1.0 - beta) / alpha)
        self.fine_at = math.log(beta / (1.0 - alpha))
        self._per_right = math.log(p1 / p0)
        self._per_wrong = math.log((1.0 - p1) / (1.0 - p0))
        self.right = 0
        self.wrong = 0

    def update(self, right: int, wrong: int) -> SprtVerdict:
        """Count one whole batch and say what is known now."""
        self.right += require_count("right", right)
        self.wrong += require_count("wrong", wrong)
        evidence = self.right * self._per_right + self.wrong * self._per_wrong
        if evidence >= self.broken_at:
            return SprtVerdict.BROKEN
        return SprtVerdict.FINE if evidence <= self.fine_at else SprtVerdict.UNDECIDED


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyStop:
    """A gate that stops early: an `sprt` looked at after each batch, `limit` where it stays undecided.

    Both together keep the alpha asked for, and find an accuracy of `p1` with the power asked for. `drop` is
    how far that lies below the known or recorded accuracy.
    """

    limit: Limit
    drop: float
    p0: float
    p1: float
    alpha: float
    beta: float

    def sprt(self) -> Sprt:
        """A fresh test, before its first question."""
        return Sprt(self.p0, self.p1, self.alpha, self.beta)


def early_stop(n: int, *, p0: float, alpha: float, power: float = 0.95) -> EarlyStop | None:
    """An early stop over `n` questions against the known accuracy `p0`.

    Both errors are halved: alpha / 2 for each test, and of the failures missed (1 - power) half for a wrong
    "fine" and half for the final gate. None where the final gate finds nothing, or nothing is ever wrong.
    """
    require_level("alpha", alpha)
    limit = exact_limit(n, p0=p0, alpha=alpha / 2.0)
    return _early_stop(n, limit, known=p0, p0=p0, alpha=alpha, power=power)


def early_stop_recorded(
    n: int, *, correct: int, of: int, alpha: float, power: float = 0.95
) -> EarlyStop | None:
    """As `early_stop`, against a recorded baseline that had `correct` right `of` those it was asked.

    The recorded accuracy may be better luck than truth, and a sequential test against it would fail good
    engines (1 in 100 at 200 questions and as many recorded). So its p0 is the lowest accuracy that
    `baseline_limit` makes room for: the one whose exact limit is that limit.
    """
    require_level("alpha", alpha)
    limit = baseline_limit(n, correct=correct, of=of, alpha=alpha / 2.0)
    sure = first_share(
        lambda p: Binomial(n, p).below(limit.fail_below) <= alpha / 2.0, low=0.0, high=correct / of
    )
    known = correct / of
    return _early_stop(n, limit, known=known, p0=known if sure is None else sure, alpha=alpha, power=power)


def _early_stop(
    n: int, limit: Limit, *, known: float, p0: float, alpha: float, power: float
) -> EarlyStop | None:
    missed = (1.0 - require_level("power", power)) / 2.0
    p1 = p0 - drop_found(limit, n, p0=p0, power=1.0 - missed)
    if not 0.0 < p1 < p0 < 1.0:
        return None
    return EarlyStop(limit=limit, drop=known - p1, p0=p0, p1=p1, alpha=alpha / 2.0, beta=missed)


def curtail(limit: Limit, n: int, right: int, wrong: int) -> SprtVerdict:
    """What the fixed gate will say of all `n` questions, where what was counted so far settles it.

    Broken once more than n - fail_below are wrong, fine once fail_below are right.
    """
    require_count("n", n)
    require_count("right", right, high=n)
    require_count("wrong", wrong, high=n - right)
    if right >= limit.fail_below:
        return SprtVerdict.FINE
    return SprtVerdict.BROKEN if wrong > n - limit.fail_below else SprtVerdict.UNDECIDED
