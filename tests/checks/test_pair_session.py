"""One job's checks on a pair that really runs: who is launched, what faults reach, and who is told to have died."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from harness.checks import CHECKS, Ask, BaselineUse, Check, CheckContext, CheckResult
from harness.checks.base import passed
from harness.checks.launches import to_test
from harness.checks.session import JobSession, SessionOptions
from harness.engines import PairSpec
from harness.errors import DeadlineError
from harness.suites import CheckSpec, Job, ProfileName, expand, load_suite
from harness.suites.check_params import DrainedParams
from harness.topology import Side

SUITE = """
summary: the smallest pair there is
profiles:
  cpu:
    needs: {cpu: 1}
    estimate: 30s
    timeout: 10m
    prefill:
      kind: reference
      model: builtin:random-gqa
      parallel: {tp: 1}
      args: {page-size: 4, chunked-prefill-size: 16, kv-bytes: 131072}
      launch_timeout: 2m
    decode:
      kind: reference
      model: builtin:random-gqa
      parallel: {tp: 2, dcp: 2}
      args: {page-size: 4, kv-bytes: 131072, max-running-requests: 8}
      launch_timeout: 2m
    router: {args: {request-timeout: 60, attempts: 2}}
baseline: {parallel: {dcp: 1}}
checks:
  - parity: {lengths: [1, 9, 40], max_new_tokens: 3}
  - transfer: {lengths: [1, 9, 40], max_new_tokens: 32}
  - drained: {}
  - interrupt: {sides: [decode], victims: [rank], max_new_tokens: 64, prompt_len: 64}
  - active: {dcp: 2}
"""
LOGS = ["2-decode-tp2-dcp2.log", "2-prefill-tp1-dcp1.log", "2-router.log"]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    folder = tmp_path / "suites"
    folder.mkdir()
    (folder / "tiny.yaml").write_text(SUITE)
    (job,) = expand(load_suite(folder / "tiny.yaml", root=folder), ProfileName.CPU)
    return job


def run(
    job: Job, logs: Path, *, checks: dict[str, Check] | None = None, **options: Any
) -> tuple[dict[str, CheckResult], list[str]]:
    """The results by check, and the names of the logs that a report shows."""
    logs.mkdir()
    session = JobSession(job, checks=checks or dict(CHECKS), options=SessionOptions(logs=logs, **options))
    try:
        results = {spec.name: session.run(spec) for spec in job.checks}
        return results, [log.name for log in session.logs()]
    finally:
        session.close()


def test_every_check_runs_on_one_pair_and_compares_with_one_engine(job: Job, tmp_path: Path) -> None:
    results, logs = run(job, tmp_path / "logs")
    assert {name: result.outcome.value for name, result in results.items()} == dict.fromkeys(
        results, "passed"
    )
    again = [f"2-decode-tp2-dcp2-start{number}.log" for number in (2, 3)]
    assert logs == sorted(["1-baseline-tp2-dcp1.log", *LOGS, *again])
    assert results["interrupt"].figures["rounds"][0]["ended"] == "rank 1 was killed by SIGKILL"


def test_a_fault_of_handing_over_is_seen_by_the_rows_alone(job: Job, tmp_path: Path) -> None:
    checks = tuple(spec for spec in job.checks if spec.name in ("parity", "transfer"))
    results, _ = run(replace(job, checks=checks), tmp_path / "logs", faults=("pd-contiguous",))
    assert results["transfer"].outcome == "failed", results
    assert "should hold position" in results["transfer"].message


def test_faults_and_arguments_reach_both_sides(job: Job) -> None:
    launch = to_test(job, args={"disaggregation-transfer-backend": "shm"}, faults=("pd-swap",))
    assert isinstance(launch, PairSpec)
    for side in (launch.prefill, launch.decode):
        assert side.faults == ("pd-swap",)
        assert side.args["disaggregation-transfer-backend"] == "shm"
    assert launch.router_args == {"request-timeout": 60, "attempts": 2}


@dataclass(frozen=True)
class Deadly:
    """A check in which a rank of the decode engine is killed, or whose deadline passes."""

    how: str
    baseline_use: BaselineUse = BaselineUse.NEVER

    def baseline_asks(self, params: Any) -> Sequence[Ask]:
        return []

    def run(self, params: Any, context: CheckContext) -> CheckResult:
        if self.how == "deadline":
            raise DeadlineError("check deadly", 1)
        assert context.pair is not None
        for rank in context.pair.engine(Side.DECODE).client.server_info().ranks or ():
            os.kill(rank.pid, signal.SIGKILL)
            break
        context.client.server_info()
        context.client.flush_cache()
        return passed("nobody noticed")


def deadly(job: Job, logs: Path, how: str) -> CheckResult:
    only = replace(job, checks=(CheckSpec(name="deadly", params=DrainedParams()),))
    results, _ = run(only, logs, checks={"deadly": cast(Check, Deadly(how))})
    return results["deadly"]


def test_the_member_that_died_is_named(job: Job, tmp_path: Path) -> None:
    result = deadly(job, tmp_path / "logs", "killed")
    assert result.outcome == "error"
    assert "engine died: decode engine: rank 0 was killed by SIGKILL" in result.message


def test_a_deadline_leaves_the_stacks_of_all_three(job: Job, tmp_path: Path) -> None:
    result = deadly(job, tmp_path / "logs", "deadline")
    assert result.figures["deadline"] == "check deadly"
    logs = sorted((tmp_path / "logs").glob("1-*.log"))
    assert [log.name.removeprefix("1-") for log in logs] == [name.removeprefix("2-") for name in LOGS]
    assert all("most recent call first" in log.read_text() for log in logs)
