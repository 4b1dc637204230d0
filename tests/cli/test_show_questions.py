"""`harness show RUN JOB --questions` on a ledger that a run left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import assert_usage_error, harness

from harness.ledger import Ledger
from harness.verdict import (
    AskedQuestion,
    CheckOutcome,
    CheckRecord,
    QuestionOutcome,
    QuestionRecord,
    QuestionRole,
)


def asked(number: int, outcome: str, role: str = "engine") -> AskedQuestion:
    answer = {"correct": "42", "wrong": "41"}.get(outcome)
    record = QuestionRecord(
        question=number,
        prompt_hash="ab",
        outcome=QuestionOutcome(outcome),
        expected="42",
        answer=answer,
        text=f"#### {answer}",
        tokens=9,
        finish_reason="stop",
        seconds=0.25,
    )
    return AskedQuestion(check="accuracy", role=QuestionRole(role), record=record)


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """A run with a scored job, whose second attempt was asked last, and one that asked nothing."""
    with Ledger.open(tmp_path) as ledger:
        run = ledger.start_run(harness_sha="abc")
        for job in ("scored", "plain"):
            ledger.add_job(run, f"dcp/{job}@cpu", suite=f"dcp/{job}", profile="cpu")
            for n in (1, 2):
                ledger.start_attempt(run, f"dcp/{job}@cpu", n=n)
        ledger.add_questions(run, "dcp/scored@cpu", n=1, asked=[asked(99, "correct")])
        answers = [asked(1, "correct"), asked(2, "wrong"), asked(3, "truncated")]
        ledger.add_questions(run, "dcp/scored@cpu", n=2, asked=[asked(2, "correct", "baseline"), *answers])
    return tmp_path


def test_flips_come_first_and_all_shows_the_rest(reports):
    done = harness("show", "latest", "dcp/scored", "--questions", reports=reports)
    assert done.code == 0, done.told
    head, columns, *rows = done.out.strip().splitlines()
    assert head.startswith("dcp/scored@cpu attempt 2, accuracy: engine: 1 correct, 1 wrong, 1 truncated of 3")
    assert "baseline: 1 correct of 1; 1 flip" in head
    assert columns.split() == [
        *("question", "outcome", "expected", "baseline", "engine", "tokens", "finish", "seconds")
    ]
    assert [row.split()[:2] for row in rows[:2]] == [["2", "wrong"], ["3", "truncated"]]
    assert rows[2].startswith("1 more were answered correctly")
    everything = harness("show", "latest", "dcp/scored", "--questions", "--all", reports=reports).out
    assert [row.split()[0] for row in everything.strip().splitlines()[2:]] == ["2", "3", "1"]


def test_the_task_is_told_since_a_suite_may_be_named_after_another(reports):
    check = CheckRecord(
        name="accuracy", outcome=CheckOutcome.PASSED, figures={"task": "sums (synthetic, not GSM8K)"}
    )
    with Ledger.open(reports) as ledger:
        ledger.add_checks(ledger.load_run().run, "dcp/scored@cpu", n=2, checks=[check])
    head = harness("show", "latest", "dcp/scored", "--questions", reports=reports).out.splitlines()[0]
    assert head.startswith(
        "dcp/scored@cpu attempt 2, accuracy, sums (synthetic, not GSM8K): engine: 1 correct"
    )


def test_json_has_every_record_of_the_attempt(reports):
    done = harness("show", "latest", "dcp/scored@cpu", "--questions", "--json", reports=reports)
    told = json.loads(done.out)
    (job,) = told["jobs"]
    assert (told["schema"], job["id"], job["attempt"]) == (1, "dcp/scored@cpu", 2)
    assert [(each["role"], each["question"], each["outcome"]) for each in job["questions"]] == [
        ("baseline", 2, "correct"),
        ("engine", 1, "correct"),
        ("engine", 2, "wrong"),
        ("engine", 3, "truncated"),
    ]
    assert job["questions"][0]["text"] == "#### 42"


def test_a_whole_run_shows_the_jobs_that_asked(reports):
    told = json.loads(harness("show", "--questions", "--json", reports=reports).out)
    assert [job["id"] for job in told["jobs"]] == ["dcp/scored@cpu"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["latest", "dcp/plain", "--questions"], ["no question records of dcp/plain@cpu", "accuracy"]),
        (["latest", "dcp/none", "--questions"], ["has no job 'dcp/none'", "dcp/scored@cpu"]),
        (["20260101-000000-abcd", "--questions"], ["there is no run '20260101-000000-abcd'"]),
        (["latest", "--all"], ["--all goes with --questions"]),
    ],
    ids=lambda value: " ".join(value) if value and isinstance(value[0], str) else "",
)
def test_what_is_not_there_is_said(reports, args, words):
    assert_usage_error(harness("show", *args, reports=reports), *words)
