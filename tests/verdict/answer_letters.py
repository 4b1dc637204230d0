"""Samples written as letters: `+` right, `-` wrong, `t` cut off, `u` without a number, `e` a failed request."""

from __future__ import annotations

from harness.verdict import QuestionOutcome, QuestionRecord
from harness.verdict.sample import Sample

LETTERS = {
    "+": QuestionOutcome.CORRECT,
    "-": QuestionOutcome.WRONG,
    "t": QuestionOutcome.TRUNCATED,
    "u": QuestionOutcome.UNPARSABLE,
    "e": QuestionOutcome.ERROR,
}


def sample(letters: str) -> Sample:
    """One question a letter, numbered from 0."""
    return Sample(
        records=tuple(
            QuestionRecord(question=i, prompt_hash=f"{i}", outcome=LETTERS[letter], expected="1")
            for i, letter in enumerate(letters)
        )
    )
