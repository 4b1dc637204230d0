"""A gate in two stages: few questions first, all of them only when those look suspicious.

The first stage never fails a gate, so the two together fail a good engine more rarely than the last stage
alone. They also miss more: a bad engine may pass the screen. `TwoStage` says exactly how much.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.verdict.arguments import require_count, require_level, require_share
from harness.verdict.distributions import Binomial
from harness.verdict.limits import NEVER_FOUND, Limit, exact_limit
from harness.verdict.search import first_share

# How often a good engine may look suspicious and be asked all questions. At 200 questions and an accuracy of
# .94 the screen is 185; the two stages together ask 367 questions on average instead of 1,319.
SUSPICIOUS_SHARE = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoStage:
    """Below `suspicious_below` right of the `first` questions, all `total` are asked and `limit` decides."""

    first: int
    total: int
    suspicious_below: int
    limit: Limit

    def __post_init__(self) -> None:
        require_count("total", self.total)
        require_count("first", self.first, high=self.total)
        require_count("suspicious_below", self.suspicious_below, high=self.first)
        require_count("fail_below", self.limit.fail_below, high=self.total)

    def fails(self, p: float) -> float:
        """P(an engine of accuracy `p` fails): over the scores of the first stage that lead to the second."""
        if self.suspicious_below == 0:
            return 0.0
        screen, rest = Binomial(self.first, p), Binomial(self.total - self.first, p)
        missing = self.limit.fail_below - (self.suspicious_below - 1)
        too_few = rest.below(missing)
        fails = 0.0
        for right in range(self.suspicious_below - 1, -1, -1):
            fails += screen.pmf(right) * too_few
            too_few += rest.pmf(self.limit.fail_below - right)
        return min(fails, 1.0)

    def asked(self, p: float) -> float:
        """How many questions an engine of accuracy `p` is asked on average."""
        goes_on = Binomial(self.first, p).below(self.suspicious_below)
        return self.first + (self.total - self.first) * goes_on

    def drop_found(self, *, p0: float, power: float = 0.95) -> float:
        """The smallest drop from `p0` that fails with probability `power`; `NEVER_FOUND` where none does."""
        require_share("p0", p0)
        require_level("power", power)
        drop = first_share(lambda lost: self.fails(max(0.0, p0 - lost)) >= power, low=0.0, high=p0)
        return NEVER_FOUND if drop is None else drop


def suspicion_limit(n: int, *, p0: float, share: float = SUSPICIOUS_SHARE) -> int:
    """The screen of a two-stage gate: below this many right of the first `n`, all questions are asked.

    The largest s with P(Bin(n, p0) < s) <= share: how often a good engine is asked everything.
    """
    return exact_limit(n, p0=p0, alpha=share).fail_below
