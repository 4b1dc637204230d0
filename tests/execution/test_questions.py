"""Questions that a job streams: in the ledger while it asks, kept whatever ends it, and never lost in silence."""

from __future__ import annotations

import pytest
from run_bench import Bench, new_job

from harness.execution.events import read_questions
from harness.verdict import CheckOutcome, QuestionOutcome, QuestionRole, Verdict

JOB = "scored@cpu"


def questions(bench: Bench, *, n: int | None = None) -> list[int]:
    """The numbers of the questions that the last run's ledger holds."""
    assert bench.last_paths is not None
    found = bench.ledger.questions(bench.last_paths.run, JOB, n=n)
    return [each.record.question for each in found.asked]


def test_records_reach_the_ledger_with_check_and_role(bench: Bench) -> None:
    bench.run({"scored": "ask(1); ask(2, role='baseline', outcome='wrong', answer='7'); check('capacity')"})
    assert bench.last_paths is not None
    first, second = bench.ledger.questions(bench.last_paths.run, JOB).asked
    assert (first.check, first.role) == ("accuracy", QuestionRole.ENGINE)
    assert (second.role, second.record.outcome) == (QuestionRole.BASELINE, QuestionOutcome.WRONG)
    assert second.record.answer == "7"


def test_whoever_is_told_of_a_check_finds_its_questions_while_the_job_runs(bench: Bench) -> None:
    """The second check is only made once the first has been shown with its questions."""
    seen: list[int] = []

    def look() -> None:
        seen.extend(questions(bench))
        (bench.folder / "seen").touch()

    bench.view.hooks["early"] = look
    code = "ask(1); ask(2); check('early'); await_file('seen'); ask(3); check('late')"
    bench.run({"scored": code}, new_job("scored", checks=("early", "late"), timeout_s=60.0))
    assert seen == [1, 2]
    assert questions(bench) == [1, 2, 3]


def test_a_bell_is_enough_without_any_check(bench: Bench) -> None:
    """A check that asks for minutes is seen while it asks; the file is looked at whoever rings."""
    told = bench.ledger.add_questions
    seen: list[int] = []

    def add(run: str, job_id: str, **others: object) -> None:
        told(run, job_id, **others)  # type: ignore[arg-type]
        seen.extend(questions(bench))
        (bench.folder / "seen").touch()

    bench.ledger.add_questions = add  # type: ignore[method-assign, assignment]
    record = bench.run({"scored": "ask(1); await_file('seen'); check('capacity')"})
    assert record.jobs[0].verdict is Verdict.PASSED
    assert seen == [1]


@pytest.mark.usefixtures("mode")
def test_a_killed_job_loses_at_most_the_batch_in_flight(bench: Bench) -> None:
    code = """
ask(1); ask(2, bell=False)
with EVENTS.with_name('questions.jsonl').open('a') as file:
    file.write('{"check": "accuracy", "rol')
die(9)
"""
    record = bench.run({"scored": code})
    assert record.jobs[0].verdict is Verdict.FAILED
    assert "killed by SIGKILL" in record.jobs[0].reason
    assert questions(bench) == [1, 2]


def test_each_attempt_has_its_own(bench: Bench) -> None:
    bench.run(
        {"scored": "ask(2 if Path('once').exists() else 1); Path('once').touch(); check('capacity')"},
        repeat=2,
    )
    assert [questions(bench, n=n) for n in (1, 2)] == [[1], [2]]


def test_a_line_that_is_no_record_makes_the_attempt_red(bench: Bench) -> None:
    record = bench.run({"scored": "ask(1); ask(2, tokens='many'); ask(3); check('capacity')"})
    (job,) = record.jobs
    assert job.verdict is Verdict.FAILED
    assert "a question record of the job cannot be read" in job.reason
    assert questions(bench) == [1, 3]


@pytest.mark.parametrize(
    "line", [b"", b"[1]", b"\xff", b"{}", b"[" * 100_000, b"9" * 5000], ids=lambda line: line[:4]
)
def test_whatever_a_line_holds_it_is_a_record_or_an_error(line: bytes) -> None:
    asked, (check,) = read_questions([line])
    assert asked == []
    assert (check.name, check.outcome) == ("events", CheckOutcome.ERROR)
