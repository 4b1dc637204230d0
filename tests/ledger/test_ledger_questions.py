"""Questions of scored checks, and the ledgers that are older than their table."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness.ledger import AttemptQuestions, Ledger, LedgerError
from harness.ledger.schema import SCHEMA_VERSION
from harness.verdict import (
    AskedQuestion,
    AttemptOutcome,
    CheckOutcome,
    CheckRecord,
    QuestionOutcome,
    QuestionRecord,
    QuestionRole,
    Verdict,
)

OLD_RUN = "20261129-145200-affb"
RIGHT = QuestionRecord(
    question=7,
    prompt_hash="ab12",
    outcome=QuestionOutcome.CORRECT,
    expected="42",
    answer="42",
    text="6 · 7\n#### 42",
    tokens=9,
    finish_reason="stop",
    seconds=0.25,
)
FAILED = QuestionRecord(
    question=8, prompt_hash="cd34", outcome=QuestionOutcome.ERROR, expected="3", error="status 500"
)


def asked(record: QuestionRecord, role: QuestionRole = QuestionRole.ENGINE) -> AskedQuestion:
    return AskedQuestion(check="accuracy", role=role, record=record)


@pytest.fixture
def run(ledger: Ledger) -> str:
    """A run with one job and its first attempt."""
    run = ledger.start_run(harness_sha="abc")
    ledger.add_job(run, "a@cpu", suite="a", profile="cpu")
    ledger.start_attempt(run, "a@cpu", n=1)
    return run


def old_ledger(folder: Path) -> Path:
    """A ledger file as a harness of schema version 1 left it."""
    file = folder / "ledger.db"
    with sqlite3.connect(file) as raw:
        raw.executescript((Path(__file__).parent / "version_1.sql").read_text())
    return file


def test_questions_come_back_as_they_were_told_before_anything_ended(ledger, run, tmp_path):
    told = [
        asked(RIGHT, QuestionRole.BASELINE),
        asked(FAILED),
        asked(replace(RIGHT, answer=None, text="\x00ü")),
    ]
    ledger.add_questions(run, "a@cpu", n=1, asked=told[:2])
    ledger.add_questions(run, "a@cpu", n=1, asked=told[2:])
    ledger.add_questions(run, "a@cpu", n=1, asked=[])
    with Ledger.open(tmp_path, create=False) as other:
        assert other.questions(run, "a@cpu") == AttemptQuestions(n=1, asked=tuple(told))


def test_an_attempt_has_its_own_and_the_last_that_was_asked_anything_stands_for_the_job(ledger, run):
    assert ledger.questions(run, "a@cpu") == AttemptQuestions(n=0, asked=())
    for n in (2, 3):
        ledger.start_attempt(run, "a@cpu", n=n)
    ledger.add_questions(run, "a@cpu", n=1, asked=[asked(RIGHT)])
    ledger.add_questions(run, "a@cpu", n=2, asked=[asked(FAILED)])
    assert ledger.questions(run, "a@cpu") == AttemptQuestions(n=2, asked=(asked(FAILED),))
    assert ledger.questions(run, "a@cpu", n=1) == AttemptQuestions(n=1, asked=(asked(RIGHT),))
    assert ledger.questions(run, "a@cpu", n=3) == AttemptQuestions(n=3, asked=())


def test_all_of_gsm8k_three_times_is_one_transaction(ledger, run):
    """The size that a nightly has; what it takes is measured elsewhere, that it is whole is seen here."""
    told = [asked(replace(RIGHT, question=n), role) for role in QuestionRole for n in range(1, 1320)]
    ledger.add_questions(run, "a@cpu", n=1, asked=told)
    assert ledger.questions(run, "a@cpu").asked == tuple(told)


def test_an_old_ledger_keeps_its_rows_and_takes_questions(tmp_path):
    old_ledger(tmp_path)
    with Ledger.open(tmp_path) as ledger:
        loaded = ledger.load_run(OLD_RUN)
        failed, not_run = loaded.jobs
        assert (failed.id, failed.verdict, failed.reason) == ("dcp/z@cpu", Verdict.FAILED, "parity failed")
        assert (not_run.verdict, not_run.reason) == (Verdict.NOT_RUN, "no pool")
        assert [attempt.outcome for attempt in failed.attempts] == [
            AttemptOutcome.INFRA,
            AttemptOutcome.FAILED,
        ]
        assert failed.last_checks[0] == CheckRecord(
            name="active", outcome=CheckOutcome.PASSED, message="4 ranks", seconds=0.25
        )
        assert ledger.questions(OLD_RUN, "dcp/z@cpu").asked == ()
        ledger.add_questions(OLD_RUN, "dcp/z@cpu", n=2, asked=[asked(RIGHT)])
    with Ledger.open(tmp_path) as again:
        assert again.questions(OLD_RUN, "dcp/z@cpu") == AttemptQuestions(n=2, asked=(asked(RIGHT),))


def test_an_old_ledger_becomes_what_a_new_one_is(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    old_ledger(old)
    tables = []
    for folder in (old, new):
        Ledger.open(folder).close()
        with sqlite3.connect(folder / "ledger.db") as raw:
            made = raw.execute("SELECT type, name, sql FROM sqlite_master")
            tables.append({(kind, name, " ".join((sql or "").split())) for kind, name, sql in made})
            (version,) = raw.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
            assert version == str(SCHEMA_VERSION)
    assert tables[0] == tables[1]


def test_several_processes_may_meet_an_old_ledger_at_once(tmp_path):
    old_ledger(tmp_path)
    code = "import sys; from pathlib import Path; from harness.ledger import Ledger; Ledger.open(Path(sys.argv[1]))"
    openers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(4)]
    assert [opener.wait() for opener in openers] == [0, 0, 0, 0]
    with Ledger.open(tmp_path) as ledger:
        assert len(ledger.load_run(OLD_RUN).jobs) == 2


@pytest.mark.parametrize("version", ["0", "-1", ""])
def test_a_version_that_never_was_is_no_ledger_of_ours(tmp_path, version):
    file = old_ledger(tmp_path)
    with sqlite3.connect(file) as raw:
        raw.execute("UPDATE meta SET value = ?", [version])
    with pytest.raises(LedgerError, match="not those of this harness"):
        Ledger.open(tmp_path)
