"""`Ledger`: what happened in every run, written as it happens, loaded as records.

Used by the execution loop (one `Ledger` per harness process; several processes write one file) and by
every report. Each verb is one short transaction: once it returns, its row survives a kill and a power cut.
A run whose owner died without ending it is loaded as it stood: results that were finished stay, unfinished
attempts are `interrupted`, unfinished jobs `not_run: the run ended first`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, selectinload

from harness.ledger.database import Database
from harness.ledger.errors import LedgerError, UnknownRunError
from harness.ledger.ids import LATEST, new_run_id
from harness.ledger.loading import RunState, attempt_record, run_record, run_state
from harness.ledger.owner import Owner
from harness.ledger.questions import AttemptQuestions, insert_questions, load_questions
from harness.ledger.schema import AttemptRow, CheckRow, JobRow, RunRow
from harness.verdict import (
    JSON,
    AskedQuestion,
    AttemptOutcome,
    CheckRecord,
    RunRecord,
    Verdict,
    is_clean_commit,
    speaks_of_code,
)

FILE_NAME = "ledger.db"

# Draws of a run id before giving up: 65,536 suffixes a second make a second draw rare already.
_ID_DRAWS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One line of the list of runs."""

    run: str
    started_at: datetime
    state: RunState
    argv: tuple[str, ...]


class Ledger:
    """The store behind `<reports>/ledger.db`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def open(cls, path: Path, *, create: bool = True) -> Ledger:
        """Opens the ledger at `path`: a `.db` file, or the reports folder that holds one.

        With `create=False` a ledger that is not there is a `UsageError`. Raises `LedgerError` for a file
        that cannot be used or was written by a newer harness.
        """
        file = path if path.suffix == Path(FILE_NAME).suffix else path / FILE_NAME
        if not create and not file.exists():
            raise UnknownRunError(f"there is no ledger at {file}: nothing has been run here yet")
        database = Database(file)
        database.set_up()
        return cls(database)

    def close(self) -> None:
        """Closes the file."""
        self._database.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start_run(self, *, harness_sha: str, argv: Sequence[str] = (), now: datetime | None = None) -> str:
        """Opens a run owned by the calling process; returns its id."""
        started_at = now or datetime.now(UTC)
        for _ in range(_ID_DRAWS):
            run = new_run_id(started_at)
            try:
                self._insert_run(run, harness_sha=harness_sha, argv=argv, started_at=started_at)
            except IntegrityError:
                continue
            return run
        raise LedgerError(f"ledger {self._database.path}: no free run id in {_ID_DRAWS} draws")

    def _insert_run(self, run: str, *, harness_sha: str, argv: Sequence[str], started_at: datetime) -> None:
        owner = Owner.current()
        with self._database.write() as session:
            session.add(
                RunRow(
                    run=run,
                    harness_sha=harness_sha,
                    started_at=started_at.isoformat(),
                    argv=list(argv),
                    pid=owner.pid,
                    start_ticks=owner.start_ticks,
                    boot_id=owner.boot_id,
                )
            )

    def add_job(
        self,
        run: str,
        job_id: str,
        *,
        suite: str,
        profile: str,
        matrix: Mapping[str, JSON] | None = None,
        engine_sha: str | None = None,
        variant: str = "",
    ) -> None:
        """The run holds this job; nothing has happened to it yet.

        `variant` says what its name stands for in this run (the suite, faults, engine arguments), in any fixed
        spelling.
        """
        with self._database.write() as session:
            row = JobRow(id=job_id, suite=suite, profile=profile, matrix=dict(matrix or {}), variant=variant)
            row.run_seq, row.engine_sha = _run(session, run).seq, engine_sha
            session.add(row)

    def start_attempt(
        self,
        run: str,
        job_id: str,
        *,
        n: int,
        node: str = "",
        devices: Sequence[str] = (),
        log_path: str | None = None,
    ) -> None:
        """Attempt number `n` of the job starts on these devices."""
        with self._database.write() as session:
            job = _job(session, run, job_id)
            session.add(AttemptRow(job_pk=job.pk, n=n, node=node, devices=list(devices), log_path=log_path))

    def add_checks(self, run: str, job_id: str, *, n: int, checks: Sequence[CheckRecord]) -> None:
        """The attempt finished these checks: one transaction, for suites whose tests end by the hundred."""
        with self._database.write() as session:
            attempt = _attempt(session, run, job_id, n)
            session.add_all(_check_row(attempt, check) for check in checks)

    def add_questions(self, run: str, job_id: str, *, n: int, asked: Sequence[AskedQuestion]) -> None:
        """The attempt asked these questions: one transaction for whatever came in at once."""
        with self._database.write() as session:
            insert_questions(session, _attempt(session, run, job_id, n), asked)

    def end_attempt(
        self,
        run: str,
        job_id: str,
        *,
        n: int,
        outcome: AttemptOutcome,
        reason: str = "",
        seconds: float = 0.0,
    ) -> None:
        """The attempt has its outcome; `seconds` is its wall time."""
        with self._database.write() as session:
            row = _attempt(session, run, job_id, n)
            row.outcome, row.reason, row.seconds = outcome.value, reason, seconds

    def end_job(
        self,
        run: str,
        job_id: str,
        *,
        verdict: Verdict,
        reason: str = "",
        engine_sha: str | None = None,
        gpu_minutes: float = 0.0,
        seconds: float = 0.0,
    ) -> None:
        """The job has its verdict. An `engine_sha` given here replaces what was expected at its start."""
        with self._database.write() as session:
            row = _job(session, run, job_id)
            row.verdict, row.reason = verdict.value, reason
            row.gpu_minutes, row.seconds = gpu_minutes, seconds
            row.engine_sha = engine_sha or row.engine_sha

    def earlier_outcomes(self, run: str, job_id: str) -> frozenset[AttemptOutcome]:
        """What other runs found out about the same job: same variant, same engine and harness commit.

        Only attempts that speak of the code count (`verdict.speaks_of_code`), and only clean commits have a
        history: the same words over another work tree are another job.
        """
        with self._database.read() as session:
            owner, job = _run(session, run), _job(session, run, job_id)
            if not is_clean_commit(owner.harness_sha):
                return frozenset()
            same = (
                select(JobRow)
                .join(RunRow, JobRow.run_seq == RunRow.seq)
                .where(
                    JobRow.id == job_id,
                    JobRow.pk != job.pk,
                    JobRow.variant == job.variant,
                    JobRow.engine_sha.is_not_distinct_from(job.engine_sha),
                    RunRow.harness_sha == owner.harness_sha,
                )
            )
            attempts = [attempt_record(row) for found in session.scalars(same) for row in found.attempts]
        return frozenset(
            attempt.outcome for attempt in attempts if attempt.outcome is not None and speaks_of_code(attempt)
        )

    def end_run(self, run: str, *, interrupted: bool = False, now: datetime | None = None) -> None:
        """Nothing more will be written about this run."""
        with self._database.write() as session:
            row = _run(session, run)
            row.ended_at = (now or datetime.now(UTC)).isoformat()
            row.interrupted = interrupted

    def load_run(self, run: str = LATEST) -> RunRecord:
        """The run as it stands now; `latest` is the one that was started last.

        Raises `UnknownRunError` naming the latest runs where there is no such run.
        """
        with self._database.read() as session:
            return run_record(_find(session, run))

    def run_state(self, run: str = LATEST) -> RunState:
        """Whether the run still runs, has ended, or lost its process."""
        with self._database.read() as session:
            return run_state(_find(session, run))

    def questions(self, run: str, job_id: str, *, n: int | None = None) -> AttemptQuestions:
        """What attempt `n` of the job was asked; None means its last attempt that was asked anything."""
        with self._database.read() as session:
            return load_questions(session, _job(session, run, job_id), n=n)

    def runs(self, *, limit: int = 20) -> list[RunSummary]:
        """The latest runs, newest first."""
        with self._database.read() as session:
            rows = session.scalars(select(RunRow).order_by(RunRow.seq.desc()).limit(limit))
            return [
                RunSummary(
                    run=row.run,
                    started_at=datetime.fromisoformat(row.started_at),
                    state=run_state(row),
                    argv=tuple(row.argv),
                )
                for row in rows
            ]


def _check_row(attempt: AttemptRow, check: CheckRecord) -> CheckRow:
    return CheckRow(
        attempt_pk=attempt.pk,
        name=check.name,
        outcome=check.outcome.value,
        message=check.message,
        figures=check.figures,
        seconds=check.seconds,
    )


def _find(session: Session, run: str) -> RunRow:
    everything = selectinload(RunRow.jobs).selectinload(JobRow.attempts).selectinload(AttemptRow.checks)
    query = select(RunRow).options(everything).order_by(RunRow.seq.desc()).limit(1)
    row = session.scalars(query if run == LATEST else query.where(RunRow.run == run)).one_or_none()
    if row is None:
        known = session.scalars(select(RunRow.run).order_by(RunRow.seq.desc()).limit(3)).all()
        if not known:
            raise UnknownRunError("nothing has been run here yet")
        raise UnknownRunError(f"there is no run '{run}'; the latest are {', '.join(known)}")
    return row


def _run(session: Session, run: str) -> RunRow:
    return session.scalars(select(RunRow).where(RunRow.run == run)).one()


def _job(session: Session, run: str, job_id: str) -> JobRow:
    query = select(JobRow).join(RunRow, JobRow.run_seq == RunRow.seq)
    return session.scalars(query.where(RunRow.run == run, JobRow.id == job_id)).one()


def _attempt(session: Session, run: str, job_id: str, n: int) -> AttemptRow:
    job = _job(session, run, job_id)
    return session.scalars(select(AttemptRow).where(AttemptRow.job_pk == job.pk, AttemptRow.n == n)).one()
