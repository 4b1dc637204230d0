"""Durations as a suite writes them: one whole or decimal number and one unit, `90s`, `4m`, `2h`.

A bare number is refused on purpose: `timeout: 30` has meant seconds, minutes and milliseconds in three test
systems that came before this one.
"""

from __future__ import annotations

import re

from harness.suites.wording import show

ALLOWED = "a number followed by s, m or h, such as 90s, 4m or 2h"

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
# Nine digits of hours are 114,000 years: enough, and never an overflow.
PATTERN = r"^[0-9]{1,9}(\.[0-9]{1,9})?[smh]$"


def parse_duration(value: object) -> float:
    """Seconds of a written duration; ValueError says what was found and what is allowed."""
    if not isinstance(value, str) or not re.fullmatch(PATTERN, value):
        raise ValueError(f"{show(value)} is not a duration; allowed: {ALLOWED}")
    seconds = float(value[:-1]) * _UNITS[value[-1]]
    if seconds <= 0:
        raise ValueError(f"{value!r} is not a duration; it must be longer than 0s")
    return seconds


def show_duration(seconds: float) -> str:
    """The shortest way to write `seconds` that `parse_duration` reads back, for messages."""
    for unit in ("h", "m"):
        if seconds >= _UNITS[unit] and seconds % _UNITS[unit] == 0:
            return f"{seconds / _UNITS[unit]:g}{unit}"
    return f"{seconds:g}s"
