"""What the execution loop tells a live view while a run goes on.

Called by `execution` from one thread, in the order: `run_started` once; per job `job_started`,
`check_finished`…, `attempt_finished`, repeated for each attempt, then `job_finished`; `close` once, also
after an interrupt. A job that cannot run gets `job_finished` alone. Implemented by `report.terminal`; a
view guarantees that no verb blocks on anything but the terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.verdict.records import AttemptRecord, CheckRecord, JobRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTicket:
    """A job as a view needs it before anything ran; `checks` are the declared names, in order."""

    id: str
    suite: str
    profile: str
    checks: tuple[str, ...] = ()
    estimate_s: float | None = None


class LiveView(Protocol):
    """The observer of one run."""

    def run_started(self, jobs: Sequence[JobTicket]) -> None:
        """The run holds these jobs; all are waiting."""

    def job_started(self, job_id: str, *, attempt: int, node: str, devices: Sequence[str]) -> None:
        """Attempt number `attempt` (from 1) of the job has its devices and its process."""

    def check_finished(self, job_id: str, check: CheckRecord) -> None:
        """The running attempt of the job finished one check."""

    def attempt_finished(self, job_id: str, attempt: AttemptRecord) -> None:
        """The attempt has its outcome; another may follow."""

    def job_finished(self, job: JobRecord) -> None:
        """The job has its verdict."""

    def close(self) -> None:
        """No more events; the view leaves the terminal as a user expects it. Safe to call twice."""
