"""Named deadlines, and the check that they nest: the innermost fires first, so a report names it."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise

from harness.errors import DeadlineError, UsageError


class Deadline:
    """`seconds` from now on `clock`, for `scope` (`job`, `launch`, `check parity`)."""

    __slots__ = ("_clock", "_expires", "scope", "seconds")

    def __init__(self, scope: str, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.scope = scope
        self.seconds = seconds
        self._clock = clock
        self._expires = clock() + seconds

    @property
    def expires(self) -> float:
        """When it passes, on its own clock."""
        return self._expires

    def remaining(self) -> float:
        """Seconds left, never below 0: fit for a timeout of select() or wait()."""
        return max(0.0, self._expires - self._clock())

    @property
    def passed(self) -> bool:
        """Whether its time is over."""
        return self._clock() >= self._expires

    def require(self) -> None:
        """Raise DeadlineError, naming the scope, once its time is over."""
        if self.passed:
            raise DeadlineError(self.scope, self.seconds)


def check_nesting(deadlines: dict[str, float]) -> None:
    """`scope → seconds`, outermost first; UsageError unless each is longer than the next one inside it."""
    outermost_first = list(deadlines.items())
    for (outer, outer_s), (inner, inner_s) in pairwise(outermost_first):
        if inner_s >= outer_s:
            raise UsageError(
                f"deadline '{inner}' of {inner_s:g} s does not nest in '{outer}' of {outer_s:g} s: "
                "the inner one must be shorter"
            )
