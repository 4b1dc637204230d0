"""What is known about a run, as values: run → jobs → attempts → checks, and their JSON contract.

The execution loop builds these, the ledger stores and loads them, every report reads them. Nothing
here does I/O. Unfinished work is told by `None` (an attempt's outcome, a job's verdict), never by a
made-up result. Numbers that JSON has no word for (NaN, infinities) leave as null.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from harness.verdict.outcomes import AttemptOutcome, CheckOutcome, Verdict

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"

# Number of the `run/show --json` contract; it changes when a field is renamed or removed.
JSON_SCHEMA = 1

# The figure that marks the check of a subtest: the parameters that it ran with.
SUBTEST_FIGURE = "subtest"

_COMMIT = re.compile(r"[0-9a-f]{40}")


def is_clean_commit(identity: str) -> bool:
    """Whether an identity of code names exactly one state of it; `+dirty` and package versions do not."""
    return _COMMIT.fullmatch(identity) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRecord:
    """One check of one attempt. `figures` are its key numbers, by name; `seconds` is wall time."""

    name: str
    outcome: CheckOutcome
    message: str = ""
    figures: dict[str, JSON] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def is_subtest(self) -> bool:
        """Whether it is one of many that a single test runs."""
        return SUBTEST_FIGURE in self.figures


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One execution of a job, counted from 1; `outcome` is None while it runs."""

    n: int
    outcome: AttemptOutcome | None = None
    node: str = ""
    devices: list[str] = field(default_factory=list)
    reason: str = ""
    checks: tuple[CheckRecord, ...] = ()
    seconds: float = 0.0
    log_path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """One job of one run; `verdict` is None until it is judged."""

    id: str
    suite: str
    profile: str
    matrix: dict[str, JSON] = field(default_factory=dict)
    engine_sha: str | None = None
    verdict: Verdict | None = None
    reason: str = ""
    attempts: tuple[AttemptRecord, ...] = ()
    gpu_minutes: float = 0.0
    seconds: float = 0.0

    @property
    def last_checks(self) -> tuple[CheckRecord, ...]:
        """The checks that the reports show: those of the last attempt."""
        return self.attempts[-1].checks if self.attempts else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """What one command, comment or night selected and what became of it."""

    run: str
    harness_sha: str
    started_at: datetime
    jobs: tuple[JobRecord, ...] = ()
    interrupted: bool = False
    argv: tuple[str, ...] = ()


def without_nan(value: object) -> JSON:
    """`value` with every non-finite number replaced by None; tuples become lists, keys strings.

    Raises `TypeError` for a value that JSON cannot hold: a check must not lose a figure silently.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    raise TypeError(f"a figure of type {type(value).__name__} has no JSON form: {value!r}")


def to_json(run: RunRecord) -> dict[str, JSON]:
    """The `run/show --json` contract, schema 1; `checks` of a job are those of its last attempt."""
    return {
        "schema": JSON_SCHEMA,
        "run": run.run,
        "harness_sha": run.harness_sha,
        "jobs": [_job(job) for job in run.jobs],
    }


def _job(job: JobRecord) -> JSON:
    return {
        "id": job.id,
        "suite": job.suite,
        "profile": job.profile,
        "matrix": without_nan(job.matrix),
        "engine_sha": job.engine_sha,
        "verdict": None if job.verdict is None else job.verdict.value,
        "reason": job.reason,
        "attempts": [_attempt(attempt) for attempt in job.attempts],
        "checks": [_check(check) for check in job.last_checks],
        "gpu_minutes": without_nan(job.gpu_minutes),
        "seconds": without_nan(job.seconds),
    }


def _attempt(attempt: AttemptRecord) -> JSON:
    return {
        "n": attempt.n,
        "outcome": None if attempt.outcome is None else attempt.outcome.value,
        "node": attempt.node,
        "devices": list(attempt.devices),
        "reason": attempt.reason,
    }


def _check(check: CheckRecord) -> JSON:
    return {
        "name": check.name,
        "outcome": check.outcome.value,
        "message": check.message,
        "figures": without_nan(check.figures),
    }
