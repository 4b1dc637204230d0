"""The scheduling policy: which waiting job starts next, on which devices.

Verbs without I/O; the clock is an argument, so the simulator and the executor run the very same policy. State
is two dicts, told once here: `_waiting` (job id → job) and `_running` (job id → where, and until when by its
estimate).

Rules: jobs are packed side by side on any pool that holds them; the longest estimate goes first, since a long
job that starts last decides when a run ends. A job that does not fit reserves the moment at which, by the
estimates, it will; shorter jobs may start before it only where that moment stays (EASY backfill). So nothing
starves, and neither order of submission nor dict order changes any answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from harness.planning.needs import candidates, devices_needed
from harness.planning.pools import ReadyPool
from harness.suites import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A job and the devices it gets; `expected_end` is on the clock that `next_start` was told."""

    job_id: str
    pool: str
    devices: tuple[str, ...]
    expected_end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """When the first blocked job of a pool will fit, and how many devices it will leave unused then."""

    at: float
    spare: int

    def leaves_room_for(self, *, end: float, devices: int) -> bool:
        """Whether a job that ends then, on so many devices, keeps the blocked job's moment."""
        return end <= self.at or devices <= self.spare


class Policy:
    """See the module's docstring."""

    def __init__(self, pools: Iterable[ReadyPool]) -> None:
        self._pools = sorted(pools, key=lambda pool: pool.name)
        self._waiting: dict[str, Job] = {}
        self._running: dict[str, Placement] = {}

    @property
    def waiting(self) -> list[str]:
        """Ids of the jobs that have not started, the next first."""
        return [job.id for job in self._in_order()]

    @property
    def busy(self) -> frozenset[str]:
        """Devices of the jobs that run."""
        return frozenset(device for placed in self._running.values() for device in placed.devices)

    def submit(self, job: Job) -> None:
        """The job waits from now on. ValueError for one that no pool can hold: see `cannot_run`."""
        if job.id in self._waiting or job.id in self._running:
            raise ValueError(f"job {job.id} is already submitted")
        if not candidates(job, self._pools):
            raise ValueError(f"job {job.id} fits in no pool")
        self._waiting[job.id] = job

    def withdraw(self, job_id: str) -> None:
        """The waiting job will not run."""
        del self._waiting[job_id]

    def finished(self, job_id: str) -> None:
        """The running job's devices are free again."""
        del self._running[job_id]

    def next_start(self, now: float, *, withheld: frozenset[str] = frozenset()) -> Placement | None:
        """The job to start now, counted as running from here on; None when all have to wait.

        `withheld` are devices that someone else holds; when they come back is not known.
        """
        reserved: dict[str, Reservation] = {}
        for job in self._in_order():
            pools = candidates(job, self._pools)
            for pool in pools:
                free = self._free(pool, withheld)
                count, end = devices_needed(job), now + job.estimate_s
                kept = pool.name not in reserved or reserved[pool.name].leaves_room_for(
                    end=end, devices=count
                )
                if len(free) >= count and kept:
                    return self._start(job, pool, devices=free[:count], end=end)
            self._reserve(job, pools, reserved, now=now, withheld=withheld)
        return None

    def _in_order(self) -> list[Job]:
        return sorted(self._waiting.values(), key=lambda job: (-job.estimate_s, job.id))

    def _free(self, pool: ReadyPool, withheld: frozenset[str]) -> tuple[str, ...]:
        taken = self.busy | withheld
        return tuple(device for device in pool.devices if device not in taken)

    def _start(self, job: Job, pool: ReadyPool, *, devices: tuple[str, ...], end: float) -> Placement:
        placement = Placement(job_id=job.id, pool=pool.name, devices=devices, expected_end=end)
        del self._waiting[job.id]
        self._running[job.id] = placement
        return placement

    def _reserve(
        self,
        job: Job,
        pools: Iterable[ReadyPool],
        reserved: dict[str, Reservation],
        *,
        now: float,
        withheld: frozenset[str],
    ) -> None:
        """Give the blocked job the pool that will hold it first, unless an earlier job reserved there."""
        moments = [(self._fits_at(job, pool, now=now, withheld=withheld), pool.name) for pool in pools]
        reservation, name = min(moments, key=lambda moment: (moment[0].at, moment[1]))
        reserved.setdefault(name, reservation)

    def _fits_at(self, job: Job, pool: ReadyPool, *, now: float, withheld: frozenset[str]) -> Reservation:
        """When enough devices of the pool are free, by the estimates of what runs there."""
        count = devices_needed(job)
        free = len(self._free(pool, withheld))
        running = (placed for placed in self._running.values() if placed.pool == pool.name)
        for placed in sorted(running, key=lambda placed: (placed.expected_end, placed.job_id)):
            free += len(placed.devices)
            if free >= count:
                # A job that outlives its estimate may end at any moment.
                return Reservation(at=max(now, placed.expected_end), spare=free - count)
        return Reservation(at=math.inf, spare=0)
