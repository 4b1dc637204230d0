"""The ledger's verbs: what is written comes back, as it happens, in order."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import pytest

from harness.errors import UsageError
from harness.ledger import Ledger, RunState, UnknownRunError, new_run_id
from harness.verdict import (
    AttemptOutcome,
    AttemptRecord,
    CheckOutcome,
    CheckRecord,
    JobRecord,
    RunRecord,
    Verdict,
)

START = datetime(2026, 11, 29, 14, 52, tzinfo=UTC)

ACTIVE = CheckRecord(name="active", outcome=CheckOutcome.PASSED, message="4 ranks", seconds=0.25)
PARITY = CheckRecord(
    name="parity",
    outcome=CheckOutcome.FAILED,
    message="token 3 ≠ 4 \x1b[31m\x00",
    figures={"gap": 0.5, "worst": {"position": 7}, "lengths": [1, None]},
    seconds=1.5,
)
RUN = RunRecord(
    run="",
    harness_sha="abc",
    started_at=START,
    argv=("run", "dcp/*"),
    jobs=(
        JobRecord(
            id="dcp/z@cpu[dcp=4]",
            suite="dcp/z",
            profile="cpu",
            matrix={"dcp": 4},
            engine_sha="e1",
            verdict=Verdict.FAILED,
            reason="parity failed",
            attempts=(
                AttemptRecord(
                    n=1,
                    outcome=AttemptOutcome.INFRA,
                    node="h1",
                    devices=["cpu:0"],
                    reason="port taken",
                    seconds=2.0,
                ),
                AttemptRecord(
                    n=2,
                    outcome=AttemptOutcome.FAILED,
                    node="h2",
                    devices=["cpu:0", "cpu:1"],
                    reason="parity failed",
                    checks=(ACTIVE, PARITY),
                    seconds=3.0,
                    log_path="dcp/z/2/log",
                ),
            ),
            gpu_minutes=0.5,
            seconds=5.0,
        ),
        JobRecord(id="dcp/a@gpu", suite="dcp/a", profile="gpu", verdict=Verdict.NOT_RUN, reason="no pool"),
    ),
)


def write(ledger: Ledger, record: RunRecord) -> str:
    """Tells the ledger about `record` as the execution loop would; returns the run's id."""
    run = ledger.start_run(harness_sha=record.harness_sha, argv=record.argv, now=record.started_at)
    for job in record.jobs:
        ledger.add_job(run, job.id, suite=job.suite, profile=job.profile, matrix=job.matrix)
    for job in record.jobs:
        for attempt in job.attempts:
            ledger.start_attempt(
                run,
                job.id,
                n=attempt.n,
                node=attempt.node,
                devices=attempt.devices,
                log_path=attempt.log_path,
            )
            for check in attempt.checks[:1]:
                ledger.add_checks(run, job.id, n=attempt.n, checks=[check])
            ledger.add_checks(run, job.id, n=attempt.n, checks=attempt.checks[1:])
            assert attempt.outcome is not None
            ledger.end_attempt(
                run,
                job.id,
                n=attempt.n,
                outcome=attempt.outcome,
                reason=attempt.reason,
                seconds=attempt.seconds,
            )
        assert job.verdict is not None
        ledger.end_job(
            run,
            job.id,
            verdict=job.verdict,
            reason=job.reason,
            engine_sha=job.engine_sha,
            gpu_minutes=job.gpu_minutes,
            seconds=job.seconds,
        )
    ledger.end_run(run)
    return run


def test_a_run_comes_back_as_it_was_told(ledger):
    run = write(ledger, RUN)
    loaded = ledger.load_run(run)
    assert loaded == RunRecord(
        run=run, harness_sha=RUN.harness_sha, started_at=RUN.started_at, jobs=RUN.jobs, argv=RUN.argv
    )
    assert ledger.run_state(run) is RunState.ENDED


def test_a_check_is_visible_to_another_opener_before_anything_ended(ledger, tmp_path):
    run = ledger.start_run(harness_sha="abc")
    ledger.add_job(run, "a@cpu", suite="a", profile="cpu", engine_sha="expected")
    ledger.start_attempt(run, "a@cpu", n=1)
    ledger.add_checks(run, "a@cpu", n=1, checks=[ACTIVE])
    with Ledger.open(tmp_path / "ledger.db", create=False) as other:
        (job,) = other.load_run().jobs
        assert other.run_state() is RunState.RUNNING
    assert (job.verdict, job.engine_sha) == (None, "expected")
    assert job.attempts == (AttemptRecord(n=1, checks=(ACTIVE,)),)


def test_a_number_that_json_lacks_comes_back_as_null(ledger):
    run = ledger.start_run(harness_sha="abc")
    ledger.add_job(run, "a@cpu", suite="a", profile="cpu")
    ledger.start_attempt(run, "a@cpu", n=1)
    figures = {"nan": float("nan"), "inf": [float("-inf")]}
    check = CheckRecord(name="c", outcome=CheckOutcome.ERROR, figures=figures)
    ledger.add_checks(run, "a@cpu", n=1, checks=[check])
    assert ledger.load_run(run).jobs[0].last_checks[0].figures == {"nan": None, "inf": [None]}


@pytest.mark.parametrize("name", ["a b", "a?b=c", "a%20b", "a#b", "a'b", ":memory:", "file:x", "ü"])
def test_the_file_is_where_its_path_says(tmp_path, name):
    """A database is addressed by URL; nothing in a path may be read as a part of one."""
    with Ledger.open(tmp_path / name) as ledger:
        run = ledger.start_run(harness_sha="abc")
        assert (tmp_path / name / "ledger.db").is_file()
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    with Ledger.open(tmp_path / name, create=False) as ledger:
        assert ledger.load_run().run == run


def test_text_that_has_no_utf8_can_be_told(ledger):
    """Arguments and paths that are no UTF-8 reach Python as half surrogate pairs."""
    odd = os.fsdecode(b"caf\xe9")
    run = ledger.start_run(harness_sha=odd, argv=["--junit", odd])
    ledger.add_job(run, "a@cpu", suite=odd, profile="cpu", matrix={"x": odd})
    ledger.start_attempt(run, "a@cpu", n=1, node=odd, devices=[odd], log_path=odd)
    check = CheckRecord(name="c", outcome=CheckOutcome.FAILED, message=odd, figures={odd: odd})
    ledger.add_checks(run, "a@cpu", n=1, checks=[check])
    loaded = ledger.load_run(run)
    assert loaded.argv == ("--junit", odd)
    assert loaded.jobs[0].suite == "caf\\udce9"
    assert loaded.jobs[0].last_checks[0].message == "caf\\udce9"
    assert loaded.jobs[0].last_checks[0].figures == {odd: odd}


def test_latest_is_the_run_that_started_last_and_runs_are_listed_newest_first(ledger):
    # same second, so that names alone could not tell the order
    started = [ledger.start_run(harness_sha="abc", argv=[str(n)], now=START) for n in range(5)]
    assert ledger.load_run("latest").run == started[-1]
    assert [summary.run for summary in ledger.runs()] == started[::-1]
    assert [summary.argv for summary in ledger.runs(limit=1)] == [("4",)]
    assert {summary.state for summary in ledger.runs()} == {RunState.RUNNING}


def test_an_interrupted_run_says_so_and_leaves_nothing_open(ledger):
    run = ledger.start_run(harness_sha="abc")
    ledger.add_job(run, "a@cpu", suite="a", profile="cpu")
    ledger.start_attempt(run, "a@cpu", n=1)
    ledger.end_run(run, interrupted=True)
    loaded = ledger.load_run(run)
    (job,) = loaded.jobs
    assert loaded.interrupted
    assert (job.verdict, job.reason) == (Verdict.NOT_RUN, "the run ended first")
    assert job.attempts[0].outcome is AttemptOutcome.INTERRUPTED


def test_an_unknown_run_names_the_latest_ones(ledger):
    with pytest.raises(UnknownRunError, match="nothing has been run"):
        ledger.load_run()
    run = ledger.start_run(harness_sha="abc")
    with pytest.raises(UsageError, match=f"no run 'nope'; the latest are {run}"):
        ledger.load_run("nope")


def test_run_ids_sort_by_time_and_a_taken_one_is_drawn_again(ledger, monkeypatch):
    early, late = new_run_id(START), new_run_id(START.replace(second=1))
    assert early < late
    assert early.startswith("20261129-145200-")
    draws = iter(["taken", "taken", "free"])
    monkeypatch.setattr("harness.ledger.store.new_run_id", lambda _: next(draws))
    assert [ledger.start_run(harness_sha="abc") for _ in range(2)] == ["taken", "free"]
