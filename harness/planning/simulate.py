"""`harness plan`: run the policy against a simulated clock in which every estimate is right.

Three phases: set aside what cannot run, simulate the rest from end to end, prove the result. The proof
(`prove`) fails loudly when a job is missing, twice there, or shares a device with another at the same time:
that would be a bug of this room, so it is no HarnessError.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from harness.planning.policy import Placement, Policy
from harness.planning.pools import ReadyPool
from harness.suites import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """One line of the plan; times in seconds from the start of the run. `cannot` says why it has no start."""

    id: str
    suite: str
    profile: str
    pool: str | None
    devices: tuple[str, ...]
    start_s: float | None
    estimate_s: float
    cannot: str | None

    @property
    def gpu_minutes(self) -> float:
        """What it would cost: minutes of each GPU it occupies."""
        gpus = sum(device.startswith("gpu:") for device in self.devices)
        return gpus * self.estimate_s / 60


def plan(
    jobs: Sequence[Job], pools: Mapping[str, ReadyPool], *, cannot: Callable[[Job], str | None]
) -> list[PlannedJob]:
    """Where and when each job would run, in order of start; those that cannot come last, in order of id."""
    refused = {job.id: reason for job in jobs if (reason := cannot(job)) is not None}
    starts = _simulate([job for job in jobs if job.id not in refused], pools)
    planned = [_line(job, starts.get(job.id), refused.get(job.id)) for job in jobs]
    prove(jobs, planned)
    return sorted(planned, key=lambda line: (line.start_s is None, line.start_s or 0.0, line.id))


def _simulate(jobs: Sequence[Job], pools: Mapping[str, ReadyPool]) -> dict[str, tuple[float, Placement]]:
    """Start of every job and its placement, by id."""
    policy = Policy(pools.values())
    for job in jobs:
        policy.submit(job)
    now = 0.0
    starts: dict[str, tuple[float, Placement]] = {}
    running: list[Placement] = []
    while policy.waiting or running:
        while (placement := policy.next_start(now)) is not None:
            starts[placement.job_id] = (now, placement)
            running.append(placement)
        now = min(placed.expected_end for placed in running)
        for placed in [placed for placed in running if placed.expected_end == now]:
            running.remove(placed)
            policy.finished(placed.job_id)
    return starts


def _line(job: Job, start: tuple[float, Placement] | None, cannot: str | None) -> PlannedJob:
    at, placement = start if start is not None else (None, None)
    return PlannedJob(
        id=job.id,
        suite=job.suite,
        profile=str(job.profile),
        pool=placement.pool if placement else None,
        devices=placement.devices if placement else (),
        start_s=at,
        estimate_s=job.estimate_s,
        cannot=cannot,
    )


def prove(jobs: Sequence[Job], planned: Sequence[PlannedJob]) -> None:
    """Every job exactly once, placed or refused, and no device in two jobs at a time; else RuntimeError."""
    if Counter(job.id for job in jobs) != Counter(line.id for line in planned):
        raise RuntimeError("the plan does not hold every job exactly once")
    for line in planned:
        if (line.start_s is None) == (line.cannot is None):
            raise RuntimeError(f"the plan neither starts nor refuses {line.id}, or does both")
    placed = [(line.start_s, line) for line in planned if line.start_s is not None]
    for (start, one), (other_start, other) in combinations(placed, 2):
        together = start < other_start + other.estimate_s and other_start < start + one.estimate_s
        if together and set(one.devices) & set(other.devices):
            raise RuntimeError(f"the plan gives {one.id} and {other.id} the same devices at the same time")
