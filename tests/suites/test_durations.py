from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.suites import parse_duration, show_duration


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90.0), ("4m", 240.0), ("2h", 7200.0), ("0.5s", 0.5), ("1.5h", 5400.0)]
)
def test_units(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


NOT_TEXT = [30, 1.5, True, None, []]
WRONG_TEXT = [
    "",
    "30",
    "30min",
    "30 s",
    "-5s",
    "1h30m",
    "s",
    "1e3s",
    "5M",
    "\N{ARABIC-INDIC DIGIT THREE}s",
    "0s",
]


@pytest.mark.parametrize("wrong", [*NOT_TEXT, *WRONG_TEXT, "9" * 400 + "h"])
def test_everything_else_is_refused_by_what_was_found(wrong: object) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(wrong)


@given(st.integers(1, 10**8))
def test_shown_durations_read_back(seconds: int) -> None:
    shown = show_duration(float(seconds))
    if "e" not in shown:
        assert parse_duration(shown) == seconds
    else:
        assert seconds >= 10**6


def test_shown_in_the_largest_whole_unit() -> None:
    assert [show_duration(s) for s in (90.0, 120.0, 7200.0, 0.5)] == ["90s", "2m", "2h", "0.5s"]
