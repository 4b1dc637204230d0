"""The gates of an accuracy check, computed: every limit follows from n, alpha and a baseline. One front door.

`verdict/accuracy.py` picks the gates that apply and words their answers, `docs/gates.md` explains them.
What a gate asks, and where it is:

- is this score too low for an engine as good as the known or recorded baseline? `limits`
- does this engine lose more answers than it gains, or flip more than good runs do? `pairs`
- can we stop asking already, or must more be asked? `sequential`, `two_stage`
- is any of the several gates of a run a finding? `holm`, here

Pure standard library: SciPy is the oracle of the tests, not a dependency. Failure rule: an argument out of
range raises `ValueError`; a gate with too few questions is told by its numbers (a limit that cannot be reached,
a drop of 1.0), never by an exception, since a short sample is a fact and no mistake.
"""

from __future__ import annotations

from collections.abc import Mapping

from harness.verdict.arguments import require_level, require_share
from harness.verdict.limits import (
    NEVER_FOUND,
    Interval,
    Limit,
    baseline_limit,
    baseline_p,
    drop_found,
    exact_limit,
    exact_p,
    wilson,
)
from harness.verdict.pairs import (
    QUIET_NOISE,
    FlipsLimit,
    Noise,
    flips_found,
    flips_limit,
    flips_p,
    least_lost,
    paired_drop_found,
    paired_p,
    recorded_noise,
)
from harness.verdict.sequential import (
    EarlyStop,
    Sprt,
    SprtVerdict,
    curtail,
    early_stop,
    early_stop_recorded,
)
from harness.verdict.two_stage import SUSPICIOUS_SHARE, TwoStage, suspicion_limit

__all__ = [
    "NEVER_FOUND",
    "QUIET_NOISE",
    "SUSPICIOUS_SHARE",
    "EarlyStop",
    "FlipsLimit",
    "Interval",
    "Limit",
    "Noise",
    "Sprt",
    "SprtVerdict",
    "TwoStage",
    "baseline_limit",
    "baseline_p",
    "curtail",
    "drop_found",
    "early_stop",
    "early_stop_recorded",
    "exact_limit",
    "exact_p",
    "flips_found",
    "flips_limit",
    "flips_p",
    "holm",
    "least_lost",
    "paired_drop_found",
    "paired_p",
    "recorded_noise",
    "suspicion_limit",
    "wilson",
]


def holm(p_values: Mapping[str, float], alpha: float) -> dict[str, bool]:
    """Which gates are findings, so that a good engine has one at all with probability `alpha` at most.

    From the smallest p-value on, each is held against alpha / (gates left), and the first that misses ends it
    (Holm 1979). It asks nothing of how the gates depend on each other: they share their questions.
    """
    require_level("alpha", alpha)
    for name, p in p_values.items():
        require_share(f"p of {name}", p)
    found = dict.fromkeys(p_values, False)
    ordered = sorted(p_values, key=lambda name: p_values[name])
    for left, name in zip(range(len(ordered), 0, -1), ordered, strict=True):
        if p_values[name] > alpha / left:
            break
        found[name] = True
    return found
