"""Which number a text gives as its answer: by example, by property, and on the answers of four real models."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.checks.tasks.answers import find_answer, marked_answer, same_number

SOLUTIONS = Path(__file__).parent / "data" / "gsm8k_solutions.jsonl.gz"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("#### 18", "18"),
        ("9 * 2 = <<9*2=18>>18\n#### 18", "18"),
        ("####18", "18"),
        ("#### 18\n\nShe then bought 3 more", "18"),
        ("so #### 18\nand #### 19", "18"),
        ("#### 1. Count the eggs\n16 - 3 = 13\n#### 2. Sell them\nthat makes 26", "26"),
        ("#### none\n7 of 9", "9"),
        ("#### $1,234.50", "1234.5"),
        ("#### -$5", "-5"),
        ("#### $-5", "-5"),
        ("#### \u22125", "-5"),
        ("#### 20%", "20"),
        ("#### 20 %.", "20"),
        ("#### 18.", "18"),
        ("#### 18.00", "18"),
        ("#### 007", "7"),
        ("#### 1,2", "2"),
        ("some work\nA: 18", "18"),
        ("A: 90,000\n", "90000"),
        ("A: -1.8 billion", "-1.8"),
        ("The answer is $70,000.", "70000"),
        ("about 3.50 dollars", "3.5"),
        ("a total of .5", "0.5"),
        ("16-3", "3"),
        ("16 - 3", "3"),
        ("(16)-3", "3"),
        ("x = -3", "-3"),
        ("3-8=-5", "-5"),
        ("<<3-8=-5>>-5", "-5"),
        ("lists 1,2,3", "3"),
        ("-0", "0"),
        ("0.0", "0"),
        ("1/2", "2"),
        ("v1.2.5", "5"),
        ("12 eggs... 5", "5"),
        ("5th", "5"),
        ("", None),
        ("I do not know.", None),
        ("#### ", None),
        ("####\n", None),
        ("$ % . , -", None),
        ("\u0663", None),
    ],
)
def test_the_answer_of_a_text(text: str, answer: str | None) -> None:
    assert find_answer(text) == answer


def test_only_a_mark_ends_a_worked_answer() -> None:
    assert marked_answer("2 + 2 = 4\n#### 4") == "4"
    assert marked_answer("2 + 2 = 4") is None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("18", "18.0", True),
        ("18", "18.01", False),
        ("-5", "5", False),
        ("0", "-0", True),
        ("1e2", "100", True),
    ],
)
def test_numbers_are_compared_as_numbers(one: str, other: str, same: bool) -> None:
    assert same_number(one, other) == same


numbers = st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**12), max_value=10**12)
no_numbers = st.text(st.characters(exclude_categories=["Nd", "Cs"]), max_size=60)
wordings = st.sampled_from(["{:f}", "{:,f}", "${:,f}", "{:f}%", "{:f}."])


@given(numbers, wordings, no_numbers)
def test_a_number_is_found_however_it_is_written(number: Decimal, wording: str, before: str) -> None:
    """Whatever stands before it, as long as that is no number and a blank keeps it apart."""
    found = find_answer(f"{before} {wording.format(number)}")
    assert found is not None
    assert Decimal(found) == number


@given(numbers, st.lists(numbers, max_size=5), no_numbers)
def test_a_marked_answer_wins_over_all_that_follows(
    number: Decimal, others: list[Decimal], words: str
) -> None:
    after = " ".join(map(str, others))
    text = f"first {after}\n#### {number:f}\n{words.replace('#', '')} then {after}"
    found = find_answer(text)
    assert found is not None
    assert Decimal(found) == number


@given(st.text(max_size=200))
def test_any_text_gives_a_plain_number_or_none(text: str) -> None:
    found = find_answer(text)
    assert (found is None) == (not any("0" <= character <= "9" for character in text))
    if found is not None:
        assert find_answer(found) == found
        assert format(Decimal(found), "f") == found


@given(st.text("0123456789.,-$% #A:\n", max_size=80))
def test_texts_made_of_numbers_and_marks_give_plain_numbers(text: str) -> None:
    found = find_answer(text)
    assert (found is None) == (not any(character.isdigit() for character in text))
    assert found is None or find_answer(f"#### {found}") == found


def test_a_very_long_run_of_digits_is_one_number() -> None:
    digits = "1" * 100_000
    assert find_answer(digits) == digits
    assert same_number(digits, digits + ".0")


def test_a_long_text_is_read_in_time_that_grows_with_its_length() -> None:
    """Patterns that go back over what they read would need hours for this."""
    assert find_answer("1,111" * 20_000 + "," + "#### 1." * 5_000) == "1"


SHARES = {
    "6b_finetuning": 0.2168,
    "6b_verification": 0.3904,
    "175b_finetuning": 0.3472,
    "175b_verification": 0.5625,
}


@pytest.mark.parametrize("model", SHARES)
def test_real_answers_are_scored_as_their_authors_did(model: str) -> None:
    with gzip.open(SOLUTIONS, "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    right = []
    for line in lines:
        expected, found = find_answer(line["ground_truth"]), find_answer(line[model]["solution"])
        assert expected is not None
        right.append(found is not None and same_number(found, expected))
    assert right == [line[model]["is_correct"] for line in lines]
    assert round(sum(right) / 1319, 4) == SHARES[model]
