"""Gates on one score: where they fail, what they find, and the interval that a report prints.

A gate fails when fewer than `fail_below` answers of n are right. `exact_limit` takes the accuracy of a good
engine as known, `baseline_limit` as measured in a baseline run, which is what it is. Both ask for the largest
limit that a good engine stays above with probability 1 - alpha; since a score is a whole number, the limit's
true alpha lies below the one asked for. A p-value is at most alpha exactly where the gate fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

from harness.verdict.arguments import require_count, require_level, require_share
from harness.verdict.distributions import BetaBinomial, Binomial, Scores
from harness.verdict.search import first_count, first_share

# The answer of every `..._found` function where nothing is ever found: more cannot be lost.
NEVER_FOUND = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A confidence interval of a share."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Fail when fewer than `fail_below` answers are right. `alpha` is the limit's true false-alarm rate, at
    most the one asked for; with `fail_below` 0 the gate can never fail: there are too few questions."""

    fail_below: int
    alpha: float


def wilson(correct: int, n: int, *, confidence: float = 0.95) -> Interval:
    """Wilson's score interval of `correct` right answers of `n`; 0 to 1 where nothing was asked.

    (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n), Wilson 1927.
    """
    require_count("n", n)
    require_count("correct", correct, high=n)
    require_level("confidence", confidence)
    if n == 0:
        return Interval(low=0.0, high=1.0)
    z = NormalDist().inv_cdf((1.0 + confidence) / 2.0)
    p, z_squared = correct / n, z * z / n
    centre = p + z_squared / 2.0
    half = (z_squared * (p * (1.0 - p) + z_squared / 4.0)) ** 0.5
    # 1 where everything was right: rounding must not move that end. The other one is 0 by itself.
    high = 1.0 if correct == n else (centre + half) / (1.0 + z_squared)
    return Interval(low=(centre - half) / (1.0 + z_squared), high=high)


def exact_limit(n: int, *, p0: float, alpha: float) -> Limit:
    """The largest c with P(Bin(n, p0) < c) <= alpha: the gate against a known accuracy `p0`."""
    return _limit(Binomial(n, p0), alpha=alpha)


def exact_p(x: int, n: int, *, p0: float) -> float:
    """P(Bin(n, p0) <= x): how likely a good engine gets `x` right or fewer."""
    require_count("x", x, high=require_count("n", n))
    return Binomial(n, p0).below(x + 1)


def baseline_limit(n: int, *, correct: int, of: int, alpha: float) -> Limit:
    """The largest c with P(X < c) <= alpha, for the X of an engine as good as a baseline that had `correct`
    right `of` those it was asked: X ~ BetaBinomial(n, correct + 1/2, of - correct + 1/2)."""
    return _limit(BetaBinomial.after(n, correct=correct, of=of), alpha=alpha)


def baseline_p(x: int, n: int, *, correct: int, of: int) -> float:
    """P(X <= x) for the X of `baseline_limit`."""
    require_count("x", x, high=require_count("n", n))
    return BetaBinomial.after(n, correct=correct, of=of).below(x + 1)


def drop_found(limit: Limit, n: int, *, p0: float, power: float = 0.95) -> float:
    """The smallest drop from `p0` that fails `limit` with probability `power`: p0 - p1 where
    P(Bin(n, p1) < fail_below) = power. For limits of either kind; `NEVER_FOUND` where no drop is enough."""
    require_count("n", n)
    require_count("fail_below", limit.fail_below, high=n)
    require_share("p0", p0)
    require_level("power", power)
    drop = first_share(
        lambda lost: Binomial(n, max(0.0, p0 - lost)).below(limit.fail_below) >= power, low=0.0, high=p0
    )
    return NEVER_FOUND if drop is None else drop


def _limit(scores: Scores, *, alpha: float) -> Limit:
    require_level("alpha", alpha)
    first_beyond = first_count(lambda c: scores.below(c) > alpha, low=1, high=scores.n + 1)
    return Limit(fail_below=first_beyond - 1, alpha=scores.below(first_beyond - 1))
