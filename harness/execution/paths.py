"""`RunPaths`: every path a run writes, told in one place; nothing else joins strings under `reports/`.

reports/ledger.db                       the ledger of all runs
reports/slots/cpu-0                     lock files: who holds which device of this machine
reports/baselines/KEY.json              answers of dcp=1 that later runs need not ask for again
reports/latest -> RUN                   the run that was started last
reports/RUN/SUITE@PROFILE[MATRIX]/N/    one attempt: events.jsonl (streamed results), questions.jsonl (streamed
                                        questions of scored checks, if any), job.log (its output)
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from harness.errors import InfraError, UsageError
from harness.verdict import QUESTIONS_FILE

# A full disk, or a full share of one.
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPaths:
    """The paths of run `run` below the folder `reports`."""

    reports: Path
    run: str

    @property
    def run_dir(self) -> Path:
        return self.reports / self.run

    @property
    def latest(self) -> Path:
        return self.reports / "latest"

    @property
    def slots(self) -> Path:
        return self.reports / "slots"

    @property
    def baselines(self) -> Path:
        return self.reports / "baselines"

    def job_dir(self, job_id: str) -> Path:
        """A suite's name is a path already; matrix values may hold anything, so they are quoted."""
        suite, _, point = job_id.partition("@")
        return self.run_dir / f"{suite}@{quote(point, safe='[]=,')}"

    def attempt_dir(self, job_id: str, n: int) -> Path:
        return self.job_dir(job_id) / str(n)

    def events(self, job_id: str, n: int) -> Path:
        return self.attempt_dir(job_id, n) / "events.jsonl"

    def questions(self, job_id: str, n: int) -> Path:
        """Beside the events: a job is told its attempt's folder, and nothing else, of these paths."""
        return self.attempt_dir(job_id, n) / QUESTIONS_FILE

    def log(self, job_id: str, n: int) -> Path:
        return self.attempt_dir(job_id, n) / "job.log"

    def create(self) -> None:
        """Make the run's folder and point `latest` at it, by rename: no reader ever finds it missing.

        Raises UsageError where the reports folder cannot be written, InfraError where its disk is full.
        """
        draft = self.reports / f".latest-{self.run}"
        try:
            self.run_dir.mkdir(parents=True, exist_ok=True)
            draft.symlink_to(self.run)
            draft.replace(self.latest)
        except OSError as error:
            message = f"cannot write the reports folder {self.reports}: {error.strerror}"
            if error.errno in NO_SPACE:
                raise InfraError("reports", message) from error
            raise UsageError(message) from error
