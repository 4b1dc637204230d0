"""The task *sums*: word problems of several steps, made by a generator; synthetic, not GSM8K.

It stands in for GSM8K where the engine serves the model that `tools/train_reference.py` trains. Problem i
depends on i alone. The hash of its question says which split it belongs to, so that no question can be in
two: the trainer sees only `Split.TRAIN`, prompts show only `Split.SHOTS`, and the first `EVAL_SIZE` of
`Split.EVAL` are scored. `load` raises HarnessError where the problems are not the pinned ones, because
recorded baselines would then be about others.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from harness.checks.tasks.base import LABELS, Question
from harness.checks.tasks.sums_stories import Draws, Story, draw_story, solve
from harness.checks.tasks.sums_wording import tell
from harness.errors import HarnessError, UsageError

# As many as the test set of GSM8K, so that gates computed for one hold for the other.
EVAL_SIZE = 1319
EVAL_SHA256 = "4961cc38a2f61faae698ede2c3baa2feb0032dce9a9956e9e0ca15be4a2ab360"
# More than any prompt of the trained length holds.
SHOTS_SIZE = 100
SHOTS_SHA256 = "75959ae943d8f9c7bab57deb9a341278700634214f9c309d0cb337475cbe9d48"


class Split(Enum):
    """What a problem may be used for."""

    TRAIN = "train"
    SHOTS = "shots"
    EVAL = "eval"


# Sixteenths of all problems; generous for eval, since every problem of another split is drawn in vain.
_BUCKETS = [Split.EVAL] * 4 + [Split.SHOTS] + [Split.TRAIN] * 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A story with its text; `answer` has one equation a line and ends in `#### n`."""

    story: Story
    question: str
    answer: str
    expected: str

    @property
    def split(self) -> Split:
        return _BUCKETS[hashlib.sha256(self.question.encode()).digest()[0] % len(_BUCKETS)]


def make_problem(index: int) -> Problem:
    """Problem `index`, of whatever split."""
    draws = Draws(f"sums {index}")
    story = draw_story(draws)
    steps = solve(story)
    expected = str(steps[-1].result)
    return Problem(
        story=story,
        question=tell(story, draws),
        answer="\n".join([*map(str, steps), f"#### {expected}"]),
        expected=expected,
    )


def problems(*splits: Split) -> Iterator[Problem]:
    """All problems of these splits in order, without end; the same question may come twice."""
    return (problem for problem in map(make_problem, itertools.count()) if problem.split in splits)


@dataclass(frozen=True, slots=True, kw_only=True)
class SumsTask:
    """The pinned problems as a `Task`."""

    scored: tuple[Question, ...]
    shown: tuple[Question, ...]
    name: str = "sums"
    label: str = LABELS["sums"]
    digest: str = EVAL_SHA256
    notes: tuple[str, ...] = ()

    def shots(self, count: int) -> tuple[Question, ...]:
        """The first `count` examples; raises UsageError where there are fewer."""
        if count > len(self.shown):
            raise UsageError(f"sums has {len(self.shown)} examples to show, not {count}")
        return self.shown[:count]

    def questions(self, *, shots: int) -> tuple[Question, ...]:
        """All `EVAL_SIZE`; examples come from another split, so their number takes none away."""
        return self.scored


@lru_cache(maxsize=1)
def load() -> SumsTask:
    """The pinned problems, made in about half a second, once per process."""
    scored, shown = _numbered(EVAL_SIZE, Split.EVAL), _numbered(SHOTS_SIZE, Split.SHOTS)
    for what, questions, pinned in (("eval", scored, EVAL_SHA256), ("shots", shown, SHOTS_SHA256)):
        found = digest_of(questions)
        if found != pinned:
            raise HarnessError(
                f"the {what} problems of sums made here have SHA-256 {found}, pinned is {pinned}: "
                "the generator draws other problems than those that baselines were recorded on"
            )
    return SumsTask(scored=scored, shown=shown)


def digest_of(questions: Iterable[Question]) -> str:
    """SHA-256 over questions and answers in order."""
    lines = (json.dumps([question.question, question.answer]) + "\n" for question in questions)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _numbered(count: int, split: Split) -> tuple[Question, ...]:
    """The first `count` distinct problems of `split`, numbered from 1."""
    distinct: dict[str, Problem] = {}
    for problem in problems(split):
        distinct.setdefault(problem.question, problem)
        if len(distinct) == count:
            break
    return tuple(
        Question(number=number, question=problem.question, answer=problem.answer, expected=problem.expected)
        for number, problem in enumerate(distinct.values(), start=1)
    )
