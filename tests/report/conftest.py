"""One run that holds a job of every verdict."""

from __future__ import annotations

import pytest
from report_runs import ACTIVE, PARITY, make_attempt, make_job, make_run

from harness.verdict import CheckOutcome, CheckRecord, RunRecord


@pytest.fixture
def full_run() -> RunRecord:
    unproven = CheckRecord(name="active", outcome=CheckOutcome.UNPROVEN, message="the engine offers no proof")
    red = "parity failed: length 63, position 17: token 81 ≠ 80, logprob -1.2345 vs -1.2001"
    return make_run(
        make_job(
            "red",
            "failed",
            make_attempt(
                1, "failed", ACTIVE, PARITY, reason=red, log_path="reports/x/red/1/log", node="host"
            ),
            reason=red,
            seconds=12.0,
            engine_sha="e1",
            matrix={"dcp": 4},
        ),
        make_job("green", "passed", make_attempt(1, "passed", ACTIVE), seconds=8.125),
        make_job("no_pool", "not_run", profile="gpu", reason="needs 4×b200, and no pool has a b200"),
        make_job(
            "slow",
            "timeout",
            make_attempt(1, "timeout", ACTIVE),
            reason="deadline 'job' passed",
            seconds=300.0,
        ),
        make_job(
            "killed",
            "failed",
            make_attempt(1, "failed", ACTIVE),
            reason="job process was killed by SIGKILL; never ran: parity",
        ),
        make_job(
            "flaky",
            "flaky",
            make_attempt(1, "failed", ACTIVE, PARITY, reason=red),
            make_attempt(2, "passed", ACTIVE, CheckRecord(name="parity", outcome=CheckOutcome.PASSED)),
            reason=f"1 passed, 1 did not; attempt 1: {red}",
        ),
        make_job(
            "machine",
            "infra",
            *[make_attempt(n, "infra", reason=f"port probe: {n} taken") for n in (1, 2, 3)],
            reason="the machine failed 3 times; last: port probe: 3 taken",
        ),
        make_job(
            "recovered",
            "passed",
            make_attempt(1, "infra", reason="port probe: 1 taken"),
            make_attempt(2, "passed", ACTIVE),
            reason="after the machine failed once: port probe: 1 taken",
        ),
        make_job(
            "open",
            "inconclusive",
            make_attempt(1, "inconclusive", unproven),
            reason="active is unproven: the engine offers no proof",
        ),
        make_job("declared", "skipped", reason="waits for a kernel, until 2027-01-01"),
        argv=("run", "dcp/*", "--fault=lse-base", "--profile", "auto"),
    )
