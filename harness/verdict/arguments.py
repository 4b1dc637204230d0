"""What the gates demand of their arguments, in one place and in one wording.

Failure rule: a bad argument raises `ValueError` that names it, what was found and what is allowed. A gate
never repairs its input: a count beyond its total or a probability of 1.2 is a mistake of the caller.
"""

from __future__ import annotations


def require_count(name: str, found: int, *, low: int = 0, high: int | None = None) -> int:
    """`found`, a whole number from `low` to `high`."""
    if isinstance(found, bool) or not isinstance(found, int):
        raise ValueError(f"{name} is {found!r}, allowed: a whole number")
    if found < low or (high is not None and found > high):
        raise ValueError(
            f"{name} is {found}, allowed: {low} or more" + ("" if high is None else f", at most {high}")
        )
    return found


def require_share(name: str, found: float) -> float:
    """`found`, from 0 to 1 with both ends: an accuracy, a rate, a p-value. NaN is none."""
    if not 0.0 <= found <= 1.0:
        raise ValueError(f"{name} is {found}, allowed: 0 to 1")
    return found


def require_level(name: str, found: float) -> float:
    """`found`, between 0 and 1 without the ends: an alpha, a power, a confidence."""
    if not 0.0 < found < 1.0:
        raise ValueError(f"{name} is {found}, allowed: above 0 and below 1")
    return found
