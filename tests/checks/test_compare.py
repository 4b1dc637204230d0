"""Where two answers part, and that nothing that is no number passes as close."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.checks.compare import beyond, compare, unfinished, worst
from harness.engines import Answer

PROMPT = (5, 6, 7)


def answer(tokens: list[int], logprobs: list[float], prompt: list[float] | None = None) -> Answer:
    return Answer(
        tokens=tuple(tokens),
        logprobs=tuple(logprobs),
        prompt_logprobs=tuple(prompt or []),
        finish_reason="length",
        prompt_tokens=3,
    )


def test_nothing_after_the_first_other_token_is_compared() -> None:
    ours, theirs = answer([1, 2, 3], [-1.0, -2.0, -3.0]), answer([1, 9, 3], [-1.0, -2.5, -9.0])
    places = compare(ours, theirs, prompt=PROMPT)
    assert [(p.position, p.token_differs) for p in places] == [(3, False), (4, True)]
    assert places[1].sentence() == (
        "prompt of 3, output position 4: token 2 (logprob -2.000000), baseline token 9 (logprob -2.500000)"
    )


def test_prompt_logprobs_are_compared_at_their_positions() -> None:
    places = compare(answer([], [], [-1.0, -2.0]), answer([], [], [-1.0, -2.25]), prompt=PROMPT)
    assert [(p.where, p.position, p.token, p.gap) for p in places] == [
        ("prompt", 1, 6, 0.0),
        ("prompt", 2, 7, 0.25),
    ]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_no_number_is_beyond_every_bound(bad: float) -> None:
    places = compare(answer([1, 1], [bad, -1.0]), answer([1, 1], [-1.0, -1.0]), prompt=PROMPT)
    assert beyond(places[0], bound=1e9)
    assert worst(reversed(places)) == places[0]


@given(st.lists(st.floats(-20, 0), min_size=1, max_size=8), st.data())
def test_worst_is_the_largest_gap(logprobs: list[float], data: st.DataObject) -> None:
    shift = data.draw(st.lists(st.floats(-1, 1), min_size=len(logprobs), max_size=len(logprobs)))
    theirs = [a + b for a, b in zip(logprobs, shift, strict=True)]
    tokens = list(range(len(logprobs)))
    places = compare(answer(tokens, logprobs), answer(tokens, theirs), prompt=PROMPT)
    peak = worst(places)
    assert peak is not None
    assert peak.gap == max(abs(a - b) for a, b in zip(logprobs, theirs, strict=True))


def test_a_short_answer_says_how_short() -> None:
    assert unfinished(answer([1], [-1.0]), max_new_tokens=1) == ""
    assert unfinished(answer([1], [-1.0]), max_new_tokens=3) == "1 of 3 tokens (finish reason 'length')"


def test_worst_of_nothing_is_nothing() -> None:
    assert worst([]) is None
