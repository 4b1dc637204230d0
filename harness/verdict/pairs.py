"""Gates on two engines' answers to the same questions: lost answers, and flips of either kind.

A flip is a question that one engine answers right and the other wrong: lost when the baseline was right,
gained when the engine under test is. The drop gate asks whether losses outweigh gains; the flip gate asks
whether there are more flips than two runs of a good engine have, which finds a fault that loses as many answers
as it gains.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from harness.verdict.arguments import require_count, require_level, require_share
from harness.verdict.distributions import Binomial
from harness.verdict.limits import NEVER_FOUND
from harness.verdict.search import first_count, first_share

# Two good runs of a deterministic engine differ in at most this share of the questions: another layout adds up
# in another order, and that decides the few answers which hang in the balance. 4 flips of 200 exceed it at
# alpha 1e-3.
QUIET_NOISE = 0.002
# How many flips are looked at around the mean: within ten standard deviations and forty more lies all but 1e-15
# of a binomial of any size (Bernstein's inequality).
_SPREADS, _SPREAD_MORE = 10, 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """The A/A discordance: `flips` among `compared` pairs of answers by two good runs to the same question."""

    flips: int
    compared: int

    def __post_init__(self) -> None:
        require_count("compared", self.compared, low=1)
        require_count("flips", self.flips, high=self.compared)

    @property
    def share(self) -> float:
        return self.flips / self.compared


def recorded_noise(questions: Iterable[tuple[int, int]]) -> Noise | None:
    """The A/A discordance of several runs, from how often each question was answered (right, wrong) in them.

    The rarer answers of a question are its flips, and two answers are one comparison. To compare all runs with
    the first instead would count each slip of that run once a run: a noise that is now too large and now too
    small, against which 4 good nights in 1,000 fail. A question answered once says nothing; None where all do.
    """
    told = [(right, wrong) for right, wrong in questions if right + wrong > 1]
    if not told:
        return None
    return Noise(flips=sum(min(pair) for pair in told), compared=sum(sum(pair) for pair in told) // 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipsLimit:
    """Fail from `fail_from` flips on. `alpha` is the p-value there; a limit beyond the number of questions can
    never be reached, and its alpha is 0."""

    fail_from: int
    alpha: float


def paired_p(lost: int, gained: int) -> float:
    """P(Bin(lost + gained, 1/2) >= lost): McNemar's exact test, one-sided. Where both engines are equally good,
    each flip is a loss or a gain as a fair coin falls. 10 of 10 is the least that reaches 1e-3."""
    require_count("lost", lost)
    require_count("gained", gained)
    return Binomial(lost + gained, 0.5).at_least(lost)


def paired_drop_found(n: int, *, alpha: float, discordance: float, power: float = 0.95) -> float:
    """The smallest drop that `paired_p` <= alpha finds in `n` questions with probability `power`.

    `discordance` is the share of flips between two good runs: half of it lost, half gained, and the drop comes
    on top of the lost ones. `NEVER_FOUND` where no drop is enough.
    """
    require_count("n", n)
    require_level("alpha", alpha)
    require_share("discordance", discordance)
    require_level("power", power)
    drop = first_share(
        lambda drop: _paired_power(n, drop, alpha=alpha, discordance=discordance) >= power,
        low=0.0,
        high=1.0 - discordance,
    )
    return NEVER_FOUND if drop is None else drop


def flips_p(flips: int, n: int, noise: Noise | None) -> float:
    """How likely two good engines differ in `flips` or more of `n` questions.

    The larger of two p-values, so a finding exceeds both what any engine is allowed, P(Bin(n, QUIET_NOISE) >=
    flips), and what was measured: given flips + noise.flips in all, P(Bin(flips + noise.flips, n / (n +
    noise.compared)) >= flips), the exact conditional comparison of two rates (Przyborowski and Wilenski 1940).
    With nothing measured only the first is asked, and the gate holds its alpha for quiet engines only.
    """
    require_count("flips", flips, high=require_count("n", n))
    allowed = Binomial(n, QUIET_NOISE).at_least(flips)
    if noise is None:
        return allowed
    share = n / (n + noise.compared)
    return max(allowed, Binomial(flips + noise.flips, share).at_least(flips))


def flips_limit(n: int, noise: Noise | None, alpha: float) -> FlipsLimit:
    """The smallest number of flips whose `flips_p` is at most `alpha`."""
    require_count("n", n)
    require_level("alpha", alpha)
    fail_from = first_count(lambda flips: flips_p(flips, n, noise) <= alpha, low=1, high=n + 1)
    return FlipsLimit(fail_from=fail_from, alpha=flips_p(fail_from, n, noise) if fail_from <= n else 0.0)


def flips_found(n: int, noise: Noise | None, *, alpha: float, power: float = 0.95) -> float:
    """The smallest share of flipped questions that is a finding with probability `power`: r where
    P(Bin(n, r) >= fail_from) = power. `NEVER_FOUND` where no share is enough."""
    require_level("power", power)
    fail_from = flips_limit(n, noise, alpha).fail_from
    found = first_share(lambda share: Binomial(n, share).at_least(fail_from) >= power, low=0.0, high=1.0)
    return NEVER_FOUND if found is None else found


def _paired_power(n: int, drop: float, *, alpha: float, discordance: float) -> float:
    """P(paired_p <= alpha) when an answer is lost with probability discordance / 2 + drop, gained with
    discordance / 2: over the number of flips, and for each over how many of them are lost."""
    flipping = min(1.0, discordance + drop)
    if flipping == 0.0:
        return 0.0
    flips, lost_share = Binomial(n, flipping), min(1.0, (discordance / 2.0 + drop) / flipping)
    spread = round(_SPREADS * math.sqrt(flips.mean * (1.0 - flipping)) + _SPREAD_MORE)
    counts = range(max(0, round(flips.mean) - spread), min(n, round(flips.mean) + spread) + 1)
    return math.fsum(
        flips.pmf(count) * Binomial(count, lost_share).at_least(least_lost(count, alpha)) for count in counts
    )


@lru_cache(maxsize=65536)
def least_lost(flips: int, alpha: float) -> int:
    """How many of `flips` must be lost for `paired_p` <= alpha; one more than there are where none suffice."""
    return first_count(lambda lost: paired_p(lost, flips - lost) <= alpha, low=0, high=flips + 1)
