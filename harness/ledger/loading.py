"""From rows to records; and what is said of a run whose process died before it ended the run.

Pure reading: a dead run is described, never repaired in the file, so that any number of readers may look
at it at once.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from enum import StrEnum

from harness.ledger.owner import Owner
from harness.ledger.schema import AttemptRow, CheckRow, JobRow, RunRow
from harness.verdict import (
    AttemptOutcome,
    AttemptRecord,
    CheckOutcome,
    CheckRecord,
    JobRecord,
    RunRecord,
    Verdict,
    judge_job,
)

ENDED_FIRST = "the run ended first"


class RunState(StrEnum):
    """Where a run stands."""

    RUNNING = "running"
    ENDED = "ended"
    DIED = "died"  # its process is gone and never ended it


def run_state(row: RunRow) -> RunState:
    """Where this run stands now; asks the kernel about its owner if it has not ended."""
    if row.ended_at is not None:
        return RunState.ENDED
    owner = Owner(pid=row.pid, start_ticks=row.start_ticks, boot_id=row.boot_id)
    return RunState.RUNNING if owner.alive() else RunState.DIED


def run_record(row: RunRow) -> RunRecord:
    """The run with everything in it; nothing of a run that is over stays unfinished."""
    over = run_state(row) is not RunState.RUNNING
    jobs = [_job(job) for job in row.jobs]
    return RunRecord(
        run=row.run,
        harness_sha=row.harness_sha,
        started_at=datetime.fromisoformat(row.started_at),
        jobs=tuple(_settled(job) if over else job for job in jobs),
        interrupted=row.interrupted or (over and row.ended_at is None),
        argv=tuple(row.argv),
    )


def _settled(job: JobRecord) -> JobRecord:
    """A job of a run that is over: what was left open is `interrupted` and judged as it stands."""
    attempts = tuple(
        attempt
        if attempt.outcome is not None
        else replace(attempt, outcome=AttemptOutcome.INTERRUPTED, reason=ENDED_FIRST)
        for attempt in job.attempts
    )
    if job.verdict is not None:
        return replace(job, attempts=attempts)
    verdict, reason = judge_job(attempts, not_run=ENDED_FIRST)
    return replace(job, attempts=attempts, verdict=verdict, reason=reason)


def _job(row: JobRow) -> JobRecord:
    return JobRecord(
        id=row.id,
        suite=row.suite,
        profile=row.profile,
        matrix=row.matrix,
        engine_sha=row.engine_sha,
        verdict=None if row.verdict is None else Verdict(row.verdict),
        reason=row.reason,
        attempts=tuple(attempt_record(attempt) for attempt in row.attempts),
        gpu_minutes=row.gpu_minutes,
        seconds=row.seconds,
    )


def attempt_record(row: AttemptRow) -> AttemptRecord:
    return AttemptRecord(
        n=row.n,
        outcome=None if row.outcome is None else AttemptOutcome(row.outcome),
        node=row.node,
        devices=row.devices,
        reason=row.reason,
        checks=tuple(_check(check) for check in row.checks),
        seconds=row.seconds,
        log_path=row.log_path,
    )


def _check(row: CheckRow) -> CheckRecord:
    return CheckRecord(
        name=row.name,
        outcome=CheckOutcome(row.outcome),
        message=row.message,
        figures=row.figures,
        seconds=row.seconds,
    )
