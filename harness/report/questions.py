"""The questions of a scored check, for people and as JSON: `harness show RUN JOB --questions`.

Answers of the engine under test beside those of its dcp=1 baseline. What a reader looks for comes first: flips
(right in one, wrong in the other), then whatever else was not answered correctly; the rest is counted, or shown
when asked for. Everything that an engine said is made printable here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from harness.ledger import AttemptQuestions
from harness.report.wording import printable
from harness.verdict import JSON, AskedQuestion, QuestionOutcome, QuestionRecord, QuestionRole
from harness.verdict.sample import is_flip

COLUMNS = ("question", "outcome", "expected", "baseline", "engine", "tokens", "finish", "seconds")

# An error's whole text is in the JSON.
_ERROR_CHARS = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionTable:
    """One check's questions: a headline, rows under `COLUMNS`, and how many rows were left out."""

    check: str
    headline: str
    rows: tuple[tuple[str, ...], ...]
    hidden: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """One question as both engines answered it; the baseline is None where it was not asked."""

    number: int
    engine: QuestionRecord | None
    baseline: QuestionRecord | None

    @property
    def flipped(self) -> bool:
        return self.engine is not None and self.baseline is not None and is_flip(self.engine, self.baseline)

    @property
    def calm(self) -> bool:
        """Nothing to look at: whoever answered is right."""
        return all(_right(each) for each in (self.engine, self.baseline) if each is not None)

    def row(self) -> tuple[str, ...]:
        told = self.engine or self.baseline
        assert told is not None, "a pair holds a record"
        return (
            str(self.number),
            _outcome(self),
            printable(told.expected),
            _answer(self.baseline),
            _answer(self.engine),
            str(told.tokens),
            printable(told.finish_reason),
            f"{told.seconds:.2f}",
        )


def question_tables(asked: Sequence[AskedQuestion], *, everything: bool) -> list[QuestionTable]:
    """One table a check, in the order of the checks; `everything` shows the calm questions too."""
    by_check = groupby(sorted(asked, key=lambda each: each.check), key=lambda each: each.check)
    return [_table(check, list(group), everything=everything) for check, group in by_check]


def questions_json(found: AttemptQuestions) -> JSON:
    """Every record with everything in it, as the ledger has them."""
    return [{"check": each.check, "role": each.role.value, **each.record.to_json()} for each in found.asked]


def _table(check: str, asked: Sequence[AskedQuestion], *, everything: bool) -> QuestionTable:
    engine, baseline = (_by_number(asked, role) for role in (QuestionRole.ENGINE, QuestionRole.BASELINE))
    pairs = [
        _Pair(number=number, engine=engine.get(number), baseline=baseline.get(number))
        for number in dict.fromkeys([*engine, *baseline])
    ]
    shown = sorted(
        (pair for pair in pairs if everything or not pair.calm),
        key=lambda pair: (not pair.flipped, pair.calm, pair.number),
    )
    return QuestionTable(
        check=check,
        headline="; ".join(_facts(pairs, asked)),
        rows=tuple(pair.row() for pair in shown),
        hidden=len(pairs) - len(shown),
    )


def _by_number(asked: Iterable[AskedQuestion], role: QuestionRole) -> Mapping[int, QuestionRecord]:
    return {each.record.question: each.record for each in asked if each.role is role}


def _facts(pairs: Sequence[_Pair], asked: Iterable[AskedQuestion]) -> list[str]:
    """Counts of both engines, flips between them, and how often the baseline was asked once more."""
    engine = [pair.engine for pair in pairs if pair.engine is not None]
    baseline = [pair.baseline for pair in pairs if pair.baseline is not None]
    facts = [f"engine: {_counts(engine)}"]
    if baseline:
        flips = sum(pair.flipped for pair in pairs)
        facts += [f"baseline: {_counts(baseline)}", f"{flips} flip{'s' * (flips != 1)}"]
    if again := sum(each.role is QuestionRole.BASELINE_AGAIN for each in asked):
        facts.append(f"baseline asked again: {again:,}")
    return facts


def _counts(records: Sequence[QuestionRecord]) -> str:
    found = Counter(record.outcome for record in records)
    told = ", ".join(f"{found[outcome]:,} {outcome}" for outcome in QuestionOutcome if found[outcome])
    return f"{told} of {len(records):,}" if records else "nothing asked"


def _right(record: QuestionRecord) -> bool:
    return record.outcome is QuestionOutcome.CORRECT


def _outcome(pair: _Pair) -> str:
    if pair.engine is None:
        return "not asked"
    told = pair.engine.outcome.value + (" (flip)" if pair.flipped else "")
    return f"{told}: {printable(pair.engine.error)[:_ERROR_CHARS]}" if pair.engine.error else told


def _answer(record: QuestionRecord | None) -> str:
    """The number that was found, or why there is none."""
    if record is None:
        return "-"
    return record.outcome.value if record.answer is None else printable(record.answer)
