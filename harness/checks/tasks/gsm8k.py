"""GSM8K as OpenAI published it: the test split, whole and unchanged, for `accuracy` with `task: gsm8k`.

The first lines of the file are the shots, as in upstream's tests, and are never scored. Failure rule: the file
must be the published one, byte for byte; anything else is refused, for its scores could not be compared.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from harness.checks.tasks.answers import marked_answer
from harness.checks.tasks.base import LABELS, Question
from harness.checks.tasks.datasets import Dataset, Pin, read_dataset
from harness.errors import Mark, SourceError

URL = "https://raw.githubusercontent.com/openai/grade-school-math/master/grade_school_math/data/test.jsonl"
# Names the file on machines that reach no network, for every run: a path or a URL.
ENVIRONMENT = "HARNESS_GSM8K"
# The test split: 1,319 lines.
PIN = Pin(
    name="GSM8K",
    sha256="3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
    elsewhere=f"the check's `data` or ${ENVIRONMENT} may name a path or URL of it",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gsm8k:
    """The published problems, in the file's order; their number is their line."""

    name: str
    label: str
    digest: str
    notes: tuple[str, ...]
    problems: tuple[Question, ...]

    def shots(self, count: int) -> tuple[Question, ...]:
        return self.problems[:count]

    def questions(self, *, shots: int) -> tuple[Question, ...]:
        return self.problems[shots:]


def load(source: str | None, *, pin: Pin = PIN) -> Gsm8k:
    """GSM8K from `source`, a path or URL; without one from $HARNESS_GSM8K, or from where it is published."""
    dataset = read_dataset(source or os.environ.get(ENVIRONMENT) or URL, pin)
    return Gsm8k(
        name="gsm8k",
        label=LABELS["gsm8k"],
        digest=pin.sha256,
        notes=dataset.notes,
        problems=parse_problems(dataset),
    )


def parse_problems(dataset: Dataset) -> tuple[Question, ...]:
    """One problem a line. Raises SourceError at the first line that is none."""
    lines = dataset.data.decode(errors="replace").removesuffix("\n").split("\n")
    return tuple(_problem(line, number, dataset.place) for number, line in enumerate(lines, start=1))


def _problem(line: str, number: int, place: Path) -> Question:
    def wrong(why: str) -> SourceError:
        return SourceError(Mark(place, number, 1), f"{why}; found {line:.80}")

    try:
        body = json.loads(line)
        question, answer = body["question"], body["answer"]
    except (ValueError, TypeError, KeyError) as error:
        raise wrong('a line must be {"question": ..., "answer": ...}') from error
    if not isinstance(question, str) or not isinstance(answer, str):
        raise wrong("question and answer must be texts")
    expected = marked_answer(answer)
    if expected is None:
        raise wrong("the answer must end in '#### n'")
    return Question(number=number, question=question, answer=answer, expected=expected)
