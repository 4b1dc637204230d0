"""The two distributions of a score, exact also where probabilities are tiny. Used by all gates.

X right answers of n are binomial when each is right with the same known probability, and beta-binomial when
that probability was itself estimated from a baseline. A tail starts from one value of the probability mass
function, computed in logarithms, and walks outwards by the ratio of neighbours: all terms are positive, so
nothing cancels, and a tail of 1e-200 has as many good digits as one of 0.1. The standard library is enough;
the tests hold every number against SciPy.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from harness.verdict.arguments import require_count, require_share

# A term this much smaller than the sum so far cannot change it, nor can those that follow: the largest
# share of a tail lies next to its start.
_NEGLIGIBLE = 2.0**-70
# The shorter sum is the tail beyond the mean; 1 minus it loses digits when it is larger than this.
_CANCELS = 0.75
_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
# Coefficients of Stirling's series in 1/x, 1/x^3, ...; from 15 on the first one left out is below 1e-15.
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)
_STIRLING_FROM = 15.0


class Scores(ABC):
    """A distribution of a count from 0 to `n`."""

    __slots__ = ()
    n: int

    @property
    @abstractmethod
    def mean(self) -> float:
        """Of the two tails, the one that does not contain it is summed."""

    @abstractmethod
    def log_pmf(self, k: int) -> float:
        """Logarithm of P(X = k), for 0 <= k <= n."""

    @abstractmethod
    def step(self, k: int) -> float:
        """P(X = k + 1) / P(X = k), for 0 <= k < n."""

    def pmf(self, k: int) -> float:
        """P(X = k); 0 outside 0..n."""
        return math.exp(self.log_pmf(k)) if 0 <= k <= self.n else 0.0

    def below(self, c: int) -> float:
        """P(X < c), the probability that a gate which fails below `c` fails."""
        if c <= 0:
            return 0.0
        if c > self.n:
            return 1.0
        others = self._up_from(c) if c > self.mean else 1.0
        return 1.0 - others if others < _CANCELS else self._down_from(c - 1)

    def at_least(self, c: int) -> float:
        """P(X >= c)."""
        if c <= 0:
            return 1.0
        if c > self.n:
            return 0.0
        others = self._down_from(c - 1) if c <= self.mean else 1.0
        return 1.0 - others if others < _CANCELS else self._up_from(c)

    def _down_from(self, k: int) -> float:
        term = total = self.pmf(k)
        while k > 0 and term > total * _NEGLIGIBLE:
            k -= 1
            term /= self.step(k)
            total += term
        return min(total, 1.0)

    def _up_from(self, k: int) -> float:
        term = total = self.pmf(k)
        while k < self.n and term > total * _NEGLIGIBLE:
            term *= self.step(k)
            k += 1
            total += term
        return min(total, 1.0)


@dataclass(frozen=True, slots=True)
class Binomial(Scores):
    """`n` independent answers, each right with probability `p`: P(k) = C(n, k) p^k (1-p)^(n-k)."""

    n: int
    p: float

    def __post_init__(self) -> None:
        require_count("n", self.n)
        require_share("p", self.p)

    @property
    def mean(self) -> float:
        return self.n * self.p

    def log_pmf(self, k: int) -> float:
        if self.p in (0.0, 1.0):
            return 0.0 if k == self.n * self.p else -math.inf
        chosen = k * math.log(self.p) + (self.n - k) * math.log1p(-self.p)
        return log_choose(self.n, k) + chosen

    def step(self, k: int) -> float:
        return (self.n - k) / (k + 1) * (self.p / (1.0 - self.p))


@dataclass(frozen=True, slots=True)
class BetaBinomial(Scores):
    """As `Binomial`, with p drawn from Beta(a, b): P(k) = C(n, k) B(k + a, n - k + b) / B(a, b)."""

    n: int
    a: float
    b: float

    def __post_init__(self) -> None:
        require_count("n", self.n)
        for name in ("a", "b"):
            if not 0.0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}, allowed: above 0")

    @classmethod
    def after(cls, n: int, *, correct: int, of: int) -> BetaBinomial:
        """The score of `n` questions by an engine whose baseline had `correct` right `of` those asked.

        Jeffreys' prior Beta(1/2, 1/2) plus the baseline: Beta(correct + 1/2, of - correct + 1/2).
        """
        require_count("of", of, low=1)
        require_count("correct", correct, high=of)
        return cls(n, correct + 0.5, of - correct + 0.5)

    @property
    def mean(self) -> float:
        return self.n * self.a / (self.a + self.b)

    def log_pmf(self, k: int) -> float:
        posterior = log_beta(k + self.a, self.n - k + self.b) - log_beta(self.a, self.b)
        return log_choose(self.n, k) + posterior

    def step(self, k: int) -> float:
        return (self.n - k) / (k + 1) * ((k + self.a) / (self.n - k - 1 + self.b))


def log_choose(n: int, k: int) -> float:
    """log C(n, k)."""
    return -math.log(n + 1) - log_beta(k + 1, n - k + 1)


def log_beta(a: float, b: float) -> float:
    """log B(a, b) = log Gamma(a) + log Gamma(b) - log Gamma(a + b), without the cancellation of that sum.

    Stirling's large terms are put together by hand (as in Loader, "Fast and accurate computation of binomial
    probabilities", 2000), so that only what stays after cancelling is ever rounded.
    """
    leading = -(a - 0.5) * math.log1p(b / a) - b * math.log1p(a / b) - 0.5 * math.log(b)
    return leading + _HALF_LOG_2PI + _stirling_error(a) + _stirling_error(b) - _stirling_error(a + b)


def _stirling_error(x: float) -> float:
    """log Gamma(x) minus Stirling's (x - 1/2) log x - x + log(2 pi) / 2."""
    if x < _STIRLING_FROM:
        return math.lgamma(x) - (x - 0.5) * math.log(x) + x - _HALF_LOG_2PI
    square = 1.0 / (x * x)
    total = 0.0
    for coefficient in reversed(_STIRLING):
        total = total * square + coefficient
    return total / x
