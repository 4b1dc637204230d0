"""Short ways to write down runs, jobs and attempts."""

from __future__ import annotations

from datetime import UTC, datetime

from harness.verdict import (
    AttemptOutcome,
    AttemptRecord,
    CheckOutcome,
    CheckRecord,
    JobRecord,
    RunRecord,
    Verdict,
)

ACTIVE = CheckRecord(
    name="active",
    outcome=CheckOutcome.PASSED,
    message="4 ranks live at dcp 4",
    figures={"dcp_size": 4},
    seconds=0.25,
)
PARITY = CheckRecord(
    name="parity",
    outcome=CheckOutcome.FAILED,
    message="length 63, position 17: token 81 ≠ 80, logprob -1.2345 vs -1.2001\nsecond line",
    figures={"max_logprob_gap": 0.0344, "worst": {"position": 17}},
    seconds=1.23456,
)


def make_job(name: str, verdict: str | None, *attempts: AttemptRecord, **fields) -> JobRecord:
    profile = fields.pop("profile", "cpu")
    return JobRecord(
        id=f"dcp/{name}@{profile}",
        suite=f"dcp/{name}",
        profile=profile,
        verdict=verdict and Verdict(verdict),
        attempts=attempts,
        **fields,
    )


def make_attempt(n: int, outcome: str | None, *checks: CheckRecord, **fields) -> AttemptRecord:
    return AttemptRecord(n=n, outcome=outcome and AttemptOutcome(outcome), checks=checks, **fields)


def make_run(*jobs: JobRecord, **fields) -> RunRecord:
    start = datetime(2026, 11, 29, 14, 52, tzinfo=UTC)
    return RunRecord(run="20261129-145200-ab12", harness_sha="abc", started_at=start, jobs=jobs, **fields)
