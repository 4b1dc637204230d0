"""What a scored task is: questions with worked answers, some of which are only ever shown as examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

# What reports call a task; the second name says at once what a score of the first is not.
LABELS = {"gsm8k": "GSM8K", "sums": "sums (synthetic, not GSM8K)"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One problem. `number` is its place in the task's own order, from 1; `answer` is worked out and ends in
    `#### n`, of which `expected` is the n without thousands separators."""

    number: int
    question: str
    answer: str
    expected: str


class Task(Protocol):
    """A source of problems. `label` is what reports call it, `digest` the SHA-256 of its data, `notes` what a user
    should know of how the data was come by (most often nothing)."""

    @property
    def name(self) -> str: ...

    @property
    def label(self) -> str: ...

    @property
    def digest(self) -> str: ...

    @property
    def notes(self) -> tuple[str, ...]: ...

    def shots(self, count: int) -> tuple[Question, ...]:
        """The first `count` examples; none of them is ever scored."""
        ...

    def questions(self, *, shots: int) -> tuple[Question, ...]:
        """All that may be scored when `shots` examples are shown, in the task's own order."""
        ...
