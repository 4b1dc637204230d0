"""The answers of one engine to one set of questions, counted; and two engines' answers side by side. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from harness.verdict.questions import QuestionOutcome, QuestionRecord


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What one engine answered. `correct` of `scored` is its accuracy; the other outcomes are counted apart."""

    records: tuple[QuestionRecord, ...]

    @cached_property
    def _counts(self) -> Counter[QuestionOutcome]:
        return Counter(record.outcome for record in self.records)

    @property
    def asked(self) -> int:
        return len(self.records)

    @property
    def correct(self) -> int:
        return self.count(QuestionOutcome.CORRECT)

    @property
    def scored(self) -> int:
        return self.correct + self.count(QuestionOutcome.WRONG)

    @property
    def unfinished(self) -> int:
        """Answers that were given and cannot be scored: cut off, or without a number."""
        return self.count(QuestionOutcome.TRUNCATED) + self.count(QuestionOutcome.UNPARSABLE)

    def count(self, outcome: QuestionOutcome) -> int:
        return self._counts[outcome]

    def of(self, outcome: QuestionOutcome) -> list[QuestionRecord]:
        return [record for record in self.records if record.outcome is outcome]

    def plus(self, records: Iterable[QuestionRecord]) -> Sample:
        """The same with more questions."""
        return Sample(records=(*self.records, *records))


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """One question that two engines answered differently: one right and one wrong, or one not to be scored."""

    engine: QuestionRecord
    baseline: QuestionRecord

    @property
    def lost(self) -> bool:
        """The baseline was right, the engine under test is not."""
        return self.baseline.outcome is QuestionOutcome.CORRECT

    def to_json(self) -> dict[str, Any]:
        return {
            "question": self.engine.question,
            "prompt_hash": self.engine.prompt_hash,
            "expected": self.engine.expected,
            "engine": _told(self.engine),
            "baseline": _told(self.baseline),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Two samples of the same questions. `flips` are right in one and wrong in the other; `unfinished` are
    scored in one and cut off or without a number in the other; `compared` counts those scored in both."""

    compared: int
    flips: tuple[Flip, ...]
    unfinished: tuple[Flip, ...]

    @property
    def left_unfinished(self) -> int:
        """How many answers only the baseline finished."""
        return sum(flip.baseline.outcome.scored for flip in self.unfinished)

    @property
    def lost(self) -> int:
        return sum(flip.lost for flip in self.flips)

    @property
    def gained(self) -> int:
        return len(self.flips) - self.lost


def is_flip(one: QuestionRecord, other: QuestionRecord) -> bool:
    """Right in one, wrong in the other; what cannot be scored is no flip."""
    return one.outcome.scored and other.outcome.scored and one.outcome is not other.outcome


def pair(engine: Sample, baseline: Sample) -> Paired:
    """Compare question by question; a question that one of them was not asked, or whose request failed, has no
    pair."""
    by_question = {_key(record): record for record in baseline.records}
    both = [
        Flip(engine=record, baseline=by_question[_key(record)])
        for record in engine.records
        if _key(record) in by_question
    ]
    answered = [
        two for two in both if QuestionOutcome.ERROR not in (two.engine.outcome, two.baseline.outcome)
    ]
    scored = [two for two in answered if two.engine.outcome.scored and two.baseline.outcome.scored]
    return Paired(
        compared=len(scored),
        flips=tuple(two for two in scored if is_flip(two.engine, two.baseline)),
        unfinished=tuple(
            two for two in answered if two.engine.outcome.scored is not two.baseline.outcome.scored
        ),
    )


def _key(record: QuestionRecord) -> tuple[int, str]:
    """Two questions of one file may share their text."""
    return record.question, record.prompt_hash


def _told(record: QuestionRecord) -> dict[str, Any]:
    return {"outcome": record.outcome.value, "answer": record.answer, "text": record.text}
