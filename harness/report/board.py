"""What is going on right now: the state behind both live views, fed by the events of a run.

Holds no terminal. Elapsed times come from the clock that it is given (seconds, monotonic), so that a view may
be drawn at any moment between two events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.report.wording import RUNNING, VERDICT_LOOKS, WAITING, Look
from harness.verdict import RED_CHECKS, CheckRecord, JobRecord, JobTicket


@dataclass(slots=True, kw_only=True)
class Lane:
    """One job on the board."""

    ticket: JobTicket
    look: Look = WAITING
    attempt: int = 0
    devices: tuple[str, ...] = ()
    finished_checks: int = 0
    red_checks: int = 0
    started: float | None = None
    seconds: float = 0.0
    note: str = ""

    @property
    def running(self) -> bool:
        """Whether an attempt is going on."""
        return self.look is RUNNING

    @property
    def activity(self) -> str:
        """`parity 3/7`: the check in progress is the first declared one without a result."""
        declared = self.ticket.checks
        if not self.running:
            return self.note
        if self.finished_checks < len(declared):
            return f"{declared[self.finished_checks]} {self.finished_checks + 1}/{len(declared)}"
        return f"{self.finished_checks} checks done" if self.finished_checks else "starting"


class Board:
    """Every job of the run, in the order in which the run announced them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lanes: dict[str, Lane] = {}
        self._started = clock()

    @property
    def lanes(self) -> list[Lane]:
        """All jobs."""
        return list(self._lanes.values())

    def announce(self, jobs: Sequence[JobTicket]) -> None:
        """The run holds these jobs."""
        self._started = self._clock()
        self._lanes = {job.id: Lane(ticket=job) for job in jobs}

    def start(self, job_id: str, *, attempt: int, devices: Sequence[str]) -> None:
        """An attempt begins; what an earlier one had done no longer counts."""
        lane = self._lanes[job_id]
        lane.look, lane.attempt, lane.devices = RUNNING, attempt, tuple(devices)
        lane.finished_checks = lane.red_checks = 0
        lane.started = self._clock()

    def check(self, job_id: str, check: CheckRecord) -> Lane:
        """One check of the running attempt is done; returns its job."""
        lane = self._lanes[job_id]
        lane.finished_checks += 1
        lane.red_checks += check.outcome in RED_CHECKS
        return lane

    def finish(self, job: JobRecord) -> Lane:
        """The job has its verdict; returns it as the board shows it."""
        lane = self._lanes[job.id]
        lane.seconds = self.elapsed(lane)
        lane.started = None
        lane.look = WAITING if job.verdict is None else VERDICT_LOOKS[job.verdict]
        lane.note = job.reason
        return lane

    def elapsed(self, lane: Lane) -> float:
        """Seconds of the running attempt so far; of the last one once the job is done."""
        return lane.seconds if lane.started is None else self._clock() - lane.started

    @property
    def run_seconds(self) -> float:
        """Seconds since the run was announced."""
        return self._clock() - self._started

    def counts(self) -> list[tuple[Look, int]]:
        """How many jobs look how: verdicts in the summary's order, then running and waiting."""
        found = Counter(lane.look.word for lane in self._lanes.values())
        looks = [*VERDICT_LOOKS.values(), RUNNING, WAITING]
        return [(look, found[look.word]) for look in looks if found[look.word]]
