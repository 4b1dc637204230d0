"""The questions of scored checks: thousands of rows an attempt, so they are written and read in bulk.

Used by `store` only, inside its transactions. Checks and judgements never come from here: these rows say what
became of single questions, for people who ask which ones a layout flipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from harness.ledger.schema import AttemptRow, JobRow, QuestionRow
from harness.verdict import AskedQuestion, QuestionOutcome, QuestionRecord, QuestionRole

_RECORD_FIELDS = tuple(field.name for field in fields(QuestionRecord))


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptQuestions:
    """What attempt `n` of a job was asked, in the order in which it was answered."""

    n: int
    asked: tuple[AskedQuestion, ...]


def insert_questions(session: Session, attempt: AttemptRow, asked: Sequence[AskedQuestion]) -> None:
    """One statement for all of them."""
    rows = [
        {
            **asdict(each.record),
            "outcome": each.record.outcome.value,
            "attempt_pk": attempt.pk,
            "check": each.check,
            "role": each.role.value,
        }
        for each in asked
    ]
    if rows:
        session.execute(insert(QuestionRow), rows)


def load_questions(session: Session, job: JobRow, *, n: int | None) -> AttemptQuestions:
    """Those of attempt `n`; of the last attempt that has any where `n` is None."""
    query = (
        select(QuestionRow, AttemptRow.n)
        .join(AttemptRow, QuestionRow.attempt_pk == AttemptRow.pk)
        .where(AttemptRow.job_pk == job.pk)
        .order_by(AttemptRow.n, QuestionRow.pk)
    )
    if n is not None:
        query = query.where(AttemptRow.n == n)
    rows = session.execute(query).all()
    last = n if n is not None else max((number for _, number in rows), default=0)
    return AttemptQuestions(n=last, asked=tuple(_asked(row) for row, number in rows if number == last))


def _asked(row: QuestionRow) -> AskedQuestion:
    values = {name: getattr(row, name) for name in _RECORD_FIELDS}
    record = QuestionRecord(**{**values, "outcome": QuestionOutcome(row.outcome)})
    return AskedQuestion(check=row.check, role=QuestionRole(row.role), record=record)
