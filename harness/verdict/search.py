"""Bisection over counts and over shares, for limits and for the drops they find."""

from __future__ import annotations

from collections.abc import Callable

# A ten-thousandth of a percentage point: far below what any report prints, and 20 steps.
SHARE_TOLERANCE = 1e-6


def first_count(holds: Callable[[int], bool], *, low: int, high: int) -> int:
    """The smallest count from `low` that `holds`, which stays true once it is true; `high` if none below does."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return high


def first_share(holds: Callable[[float], bool], *, low: float, high: float) -> float | None:
    """The smallest share that `holds`, which stays true once it is true; None where not even `high` does."""
    if holds(low):
        return low
    if not holds(high):
        return None
    while high - low > SHARE_TOLERANCE:
        middle = (low + high) / 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high
