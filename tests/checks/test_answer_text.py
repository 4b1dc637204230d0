"""Measures of answers against counting by hand, and quotes that no text can break out of."""

from __future__ import annotations

import ast

from hypothesis import given
from hypothesis import strategies as st

from harness.checks.answer_text import (
    MEASURED,
    QUOTED,
    first_line,
    inner_letter,
    measurable,
    printable_share,
    quote,
    quote_parting,
    repeat_share,
)

# Few letters, so that pieces repeat; lone surrogates, since JSON can carry them.
LETTERS = st.text(st.sampled_from("ab1 \n\t\x1b€\ud800"), min_size=1, max_size=80)
ANYTHING = st.text(st.characters(exclude_categories=()), max_size=200)


@given(LETTERS)
def test_printable_share_counts_what_a_terminal_prints(text: str) -> None:
    good = [letter for letter in text if letter in "ab1 \n\t"]
    assert printable_share(text) == len(good) / len(text)


@given(LETTERS.filter(lambda text: len(text) >= 5))
def test_repeat_share_is_that_of_the_most_frequent_window(text: str) -> None:
    windows = [text[start:][:5] for start in range(len(text)) if len(text[start:]) >= 5]
    assert repeat_share(text) == max(sum(a == b for b in windows) for a in windows) / len(windows)


def test_known_loops_and_plain_english() -> None:
    assert repeat_share("ha" * 40) == 0.5
    assert repeat_share(" the" * 40) >= 0.25
    assert repeat_share("The sun shone on the children who played in the park until late.") < 0.05
    assert printable_share("391 ☀☀☀☀") == 0.5
    assert printable_share("~ \x7f\x1f") == 0.5


@given(st.lists(ANYTHING, max_size=6))
def test_long_texts_are_measured_alone_and_the_rest_once_together(texts: list[str]) -> None:
    found = measurable(texts)
    assert all(len(text) >= MEASURED for text in found)
    short = [text for text in texts if len(text) < MEASURED]
    alone, together = found[: len(texts) - len(short)], found[len(texts) - len(short) :]
    assert alone == [text for text in texts if text not in short]
    characters = sum(len(text) + 1 for text in short) - 1
    assert [len(text) for text in together] == ([characters] if characters >= MEASURED else [])


def test_short_answers_are_measured_together() -> None:
    assert measurable(["a" * 30, "b" * 60, "c" * 30]) == ["b" * 60, "a" * 30 + "\n" + "c" * 30]
    assert measurable(["a" * 30]) == measurable([]) == []
    for length in (MEASURED - 1, MEASURED, MEASURED + 1):
        assert measurable(["a" * length]) == (["a" * length] if length >= 50 else [])


@given(ANYTHING)
def test_a_quote_is_one_line_of_ascii_and_says_what_it_left_out(text: str) -> None:
    told = quote(text)
    head, _, rest = told.partition("…")
    assert head.isascii()
    assert head.isprintable()
    assert ast.literal_eval(head) == text[:QUOTED]
    assert rest == ("" if len(text) <= QUOTED else f" ({len(text)} characters)")


@given(ANYTHING, ANYTHING)
def test_parting_quotes_show_the_difference(one: str, other: str) -> None:
    first, second = quote_parting(one, other)
    assert (first == second) == (one == other)


def test_parting_quotes_begin_a_little_before_the_difference() -> None:
    same = "x" * 100
    assert quote_parting(f"{same}one", f"{same}two") == (f"'{'x' * 20}one'", f"'{'x' * 20}two'")


@given(ANYTHING)
def test_a_letter_to_stop_at_has_something_before_it(text: str) -> None:
    letter = inner_letter(text)
    assert letter == "" or (letter.isascii() and letter.isalnum() and text.find(letter) > 0)


def test_the_answer_itself_is_the_first_line_with_text() -> None:
    assert first_line("\n  Paris. \nQuestion: ...") == "Paris. "
    assert first_line(" \n\n") == ""
    assert inner_letter(" Paris.") == "s"
    assert inner_letter("\ufffd7(f\ufffd7") == "f"
    assert inner_letter("xx") == inner_letter("日本語") == inner_letter("") == ""
