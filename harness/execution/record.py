"""What happens in a run: told to the ledger, then to the live view, and kept per job until it is judged."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from hashlib import sha256

from harness.execution.lifecycle import declared_checks
from harness.execution.options import RunOptions
from harness.ledger import Ledger
from harness.planning import Placement
from harness.suites import Job
from harness.verdict import (
    AskedQuestion,
    AttemptOutcome,
    AttemptRecord,
    CheckRecord,
    JobRecord,
    JobTicket,
    LiveView,
    Verdict,
    judge_job,
    needs_retry,
)

# Fields of a job that may differ between two runs of the same thing.
ELSEWHERE = frozenset({"suite_path", "tests", "skip", "tags"})


@dataclass(slots=True, kw_only=True)
class JobProgress:
    """A job and its finished attempts."""

    job: Job
    attempts: list[AttemptRecord] = field(default_factory=list)

    def wants_another(self, *, repeat: int) -> bool:
        """Whether an attempt is to follow: the machine spoiled the last one, or `repeat` asks for more."""
        if self.attempts and self.attempts[-1].outcome is AttemptOutcome.INFRA:
            return needs_retry(self.attempts)
        return sum(attempt.outcome is not AttemptOutcome.INFRA for attempt in self.attempts) < repeat


@dataclass(slots=True, kw_only=True)
class Recorder:
    """The one writer of a run's results."""

    ledger: Ledger
    run: str
    view: LiveView
    options: RunOptions
    node: str = field(default_factory=socket.gethostname)

    def run_started(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self.ledger.add_job(
                self.run,
                job.id,
                suite=job.suite,
                profile=str(job.profile),
                matrix=dict(job.matrix),
                engine_sha=engine_sha(job, self.options),
                variant=variant(job, self.options),
            )
        self.view.run_started([_ticket(job) for job in jobs])

    def attempt_started(self, job: Job, *, n: int, placement: Placement, log_path: str) -> None:
        devices = placement.devices
        self.ledger.start_attempt(self.run, job.id, n=n, node=self.node, devices=devices, log_path=log_path)
        self.view.job_started(job.id, attempt=n, node=self.node, devices=devices)

    def checks_finished(self, job: Job, *, n: int, checks: Sequence[CheckRecord]) -> None:
        self.ledger.add_checks(self.run, job.id, n=n, checks=checks)
        for check in checks:
            self.view.check_finished(job.id, check)

    def questions_asked(self, job: Job, *, n: int, asked: Sequence[AskedQuestion]) -> None:
        """Kept for `harness show --questions`; a live view has no room for thousands."""
        self.ledger.add_questions(self.run, job.id, n=n, asked=asked)

    def attempt_finished(self, job: Job, attempt: AttemptRecord) -> None:
        assert attempt.outcome is not None, "a finished attempt has an outcome"
        self.ledger.end_attempt(
            self.run,
            job.id,
            n=attempt.n,
            outcome=attempt.outcome,
            reason=attempt.reason,
            seconds=attempt.seconds,
        )
        self.view.attempt_finished(job.id, attempt)

    def job_finished(
        self, progress: JobProgress, *, not_run: str | None = None, skipped: str | None = None
    ) -> Verdict:
        """Judge the job by what it did; `not_run` and `skipped` say why it did not do (all of) it."""
        job, attempts = progress.job, progress.attempts
        earlier = self.ledger.earlier_outcomes(self.run, job.id) if attempts else frozenset()
        verdict, reason = judge_job(attempts, not_run=not_run, skipped=skipped, earlier=earlier)
        record = JobRecord(
            id=job.id,
            suite=job.suite,
            profile=str(job.profile),
            matrix=dict(job.matrix),
            engine_sha=engine_sha(job, self.options),
            verdict=verdict,
            reason=reason,
            attempts=tuple(attempts),
            gpu_minutes=sum(gpu_minutes(attempt) for attempt in attempts),
            seconds=sum(attempt.seconds for attempt in attempts),
        )
        self.ledger.end_job(
            self.run,
            job.id,
            verdict=verdict,
            reason=reason,
            engine_sha=record.engine_sha,
            gpu_minutes=record.gpu_minutes,
            seconds=record.seconds,
        )
        self.view.job_finished(record)
        return verdict


def variant(job: Job, options: RunOptions) -> str:
    """What a job of this name stands for in this run, in one spelling: the suite as it was read, its test
    files, and what the run changes. A suite need not be part of any commit, so its name says nothing."""
    changes = {"faults": sorted(options.faults), "engine_args": sorted(options.engine_args)}
    return json.dumps({"suite": _digest(job), **changes})


def _digest(job: Job) -> str:
    """SHA-256 of what the job does; where its files lie, and whether it is skipped, is not part of that."""
    told = [
        f"{field.name}={getattr(job, field.name)!r}" for field in fields(job) if field.name not in ELSEWHERE
    ]
    digest = sha256("\n".join(told).encode("utf-8", "backslashreplace"))
    for path in job.tests:
        with contextlib.suppress(OSError):  # a file that cannot be read is the job's own trouble
            digest.update(path.read_bytes())
    return digest.hexdigest()


def engine_sha(job: Job, options: RunOptions) -> str | None:
    """What the job's engine is known to be, by its kind; for tests of a package, that package and its version."""
    if (environment := options.environments.get(job.target)) is not None and job.target in job.targets:
        return environment.label
    tested = job.engine or job.decode
    return None if tested is None else options.engine_shas.get(tested.kind.value)


def gpu_minutes(attempt: AttemptRecord) -> float:
    """Minutes of each GPU that the attempt held."""
    return sum(device.startswith("gpu:") for device in attempt.devices) * attempt.seconds / 60


def _ticket(job: Job) -> JobTicket:
    return JobTicket(
        id=job.id,
        suite=job.suite,
        profile=str(job.profile),
        checks=tuple(declared_checks(job)),
        estimate_s=job.estimate_s,
    )
