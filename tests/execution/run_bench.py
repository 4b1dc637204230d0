"""Runs of fake jobs: real processes, a real ledger, a view that remembers what it was told."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.containment import Containment
from harness.execution import Launch, RunOptions, RunPaths, execute
from harness.ledger import Ledger
from harness.planning import ReadyPool
from harness.suites import CapacityParams, CheckSpec, Job, Needs, ProfileName
from harness.verdict import AttemptRecord, CheckRecord, JobRecord, JobTicket, RunRecord

HERE = Path(__file__).parent
PYTHON = [sys.executable, "-I", "-S"]


def new_job(name: str, *, cpu: int = 1, checks: Sequence[str] = ("capacity",), **others: Any) -> Job:
    """A job of the CPU profile; its deadline is far away unless given."""
    values: dict[str, Any] = {
        "id": f"{name}@cpu",
        "suite": name,
        "suite_path": Path(f"suites/{name}.yaml"),
        "profile": ProfileName.CPU,
        "matrix": {},
        "needs": Needs(cpu=cpu),
        "estimate_s": 10.0,
        "timeout_s": 100.0,
        "launch_timeout_s": 5.0,
        "engine": None,
        "baseline": None,
        "checks": tuple(CheckSpec(name=check, params=CapacityParams()) for check in checks),
        "tests": (),
        "tags": (),
        "skip": None,
        "env": {},
        "python": None,
    }
    return Job(**values | others)


def fake_command(codes: Mapping[str, str]) -> Callable[[Launch], list[str]]:
    """Suite name → what its job does, in the words of `fake_job`."""
    return lambda launch: [*PYTHON, str(HERE / "fake_job.py"), str(launch.events), codes[launch.job.suite]]


@dataclass
class QuietView:
    """Remembers events as words; `hooks` are called on `check_finished`, by name of the check."""

    told: list[str] = field(default_factory=list)
    hooks: dict[str, Callable[[], None]] = field(default_factory=dict)

    def run_started(self, jobs: Sequence[JobTicket]) -> None:
        self.told.append(f"run {' '.join(job.id for job in jobs)}")

    def job_started(self, job_id: str, *, attempt: int, node: str, devices: Sequence[str]) -> None:
        self.told.append(f"start {job_id} {attempt} {' '.join(devices)}")

    def check_finished(self, job_id: str, check: CheckRecord) -> None:
        self.told.append(f"check {job_id} {check.name} {check.outcome}")
        self.hooks.get(check.name, lambda: None)()

    def attempt_finished(self, job_id: str, attempt: AttemptRecord) -> None:
        self.told.append(f"attempt {job_id} {attempt.n} {attempt.outcome}")

    def job_finished(self, job: JobRecord) -> None:
        self.told.append(f"job {job.id} {job.verdict}")

    def close(self) -> None:
        self.told.append("close")


@dataclass
class Bench:
    """One place where runs happen."""

    folder: Path
    ledger: Ledger
    view: QuietView = field(default_factory=QuietView)
    last_paths: RunPaths | None = None

    @property
    def reports(self) -> Path:
        return self.folder / "reports"

    def run(
        self,
        codes: Mapping[str, str],
        *jobs: Job,
        slots: int = 2,
        cannot: Callable[[Job], str | None] = lambda job: None,
        clock: Callable[[], float] = time.monotonic,
        containment: Containment | None = None,
        sha: str = "sha",
        **options: Any,
    ) -> RunRecord:
        """Run the jobs (by default one per code) in `folder`."""
        run_id = self.ledger.start_run(harness_sha=sha)
        self.last_paths = RunPaths(reports=self.reports, run=run_id)
        return execute(
            jobs or [new_job(name) for name in codes],
            pools={"cpu": ReadyPool(name="cpu", devices=tuple(f"cpu:{slot}" for slot in range(slots)))},
            ledger=self.ledger,
            run_id=run_id,
            paths=self.last_paths,
            view=self.view,
            cannot=cannot,
            options=RunOptions(cwd=self.folder, **{"grace_s": 30.0, **options}),
            containment=containment,
            command=fake_command(codes),
            clock=clock,
        )
