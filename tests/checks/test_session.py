"""One job's checks on engines that really run: what the baseline is asked, and when it need not be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from harness.checks import CHECKS, Ask, BaselineUse, Check, CheckContext, CheckResult
from harness.checks.base import passed, random_prompt
from harness.checks.session import JobSession, SessionOptions
from harness.engines import GenerateRequest
from harness.errors import EngineDiedError
from harness.suites import CheckSpec, Job, ProfileName, expand, load_suite
from harness.suites.check_params import DrainedParams
from harness.suites.model import Needs

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SUITE = """
summary: the smallest sharded engine there is
profiles:
  cpu:
    needs: {cpu: 1}
    estimate: 10s
    timeout: 5m
    engine:
      kind: reference
      model: builtin:random-gqa
      parallel: {tp: 2, dcp: 2}
      args: {page-size: 4, kv-bytes: 65536}
      launch_timeout: 60s
baseline: {parallel: {dcp: 1}}
checks: [parity: {lengths: [1, 9], max_new_tokens: 2}]
"""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    folder = tmp_path / "suites"
    folder.mkdir()
    (folder / "tiny.yaml").write_text(SUITE)
    (job,) = expand(load_suite(folder / "tiny.yaml", root=folder), ProfileName.CPU)
    return job


def run(job: Job, logs: Path, *, checks: dict[str, Check] | None = None, **options: Any) -> list[CheckResult]:
    """Every check of the job in a session of its own."""
    logs.mkdir()
    given = dict(CHECKS) if checks is None else checks
    session = JobSession(job, checks=given, options=SessionOptions(logs=logs, **options))
    try:
        return [session.run(spec) for spec in job.checks]
    finally:
        session.close()


def launched(logs: Path) -> list[str]:
    return sorted(log.name for log in logs.glob("*.log"))


BASELINE, ENGINE = "1-baseline-tp2-dcp1.log", "2-engine-tp2-dcp2.log"


def test_a_second_run_takes_the_baseline_from_the_cache(job: Job, tmp_path: Path) -> None:
    options = {"cache": tmp_path / "cache", "engine_sha": COMMIT}
    (first,) = run(job, tmp_path / "a", **options)
    (second,) = run(job, tmp_path / "b", **options)
    assert (first.outcome, second.outcome) == ("passed", "passed")
    assert "fresh, +" in first.figures["baseline"]
    assert "cached, asked on 2" in second.figures["baseline"]
    assert first.figures["max_logprob_gap"] == second.figures["max_logprob_gap"]
    assert launched(tmp_path / "a") == [BASELINE, ENGINE]
    assert launched(tmp_path / "b") == ["1-engine-tp2-dcp2.log"]


def test_a_fault_is_found_against_a_cached_baseline(job: Job, tmp_path: Path) -> None:
    options = {"cache": tmp_path / "cache", "engine_sha": COMMIT}
    run(job, tmp_path / "a", **options)
    (result,) = run(job, tmp_path / "b", faults=("lse-base",), **options)
    assert result.outcome == "failed"
    assert launched(tmp_path / "b") == ["1-engine-tp2-dcp2.log"]


def test_uncommitted_changes_are_asked_anew(job: Job, tmp_path: Path) -> None:
    for name in "ab":
        run(job, tmp_path / name, cache=tmp_path / "cache", engine_sha=f"{COMMIT}+dirty")
        assert launched(tmp_path / name) == [BASELINE, ENGINE]


def test_a_broken_file_of_baselines_is_no_trouble_of_checks_that_read_none(job: Job, tmp_path: Path) -> None:
    broken = tmp_path / "baselines.yaml"
    broken.write_text("baselines: [")
    (result,) = run(job, tmp_path / "a", references=broken)
    assert result.outcome == "passed", result.message


def test_a_check_without_a_module_is_an_error(job: Job, tmp_path: Path) -> None:
    (result,) = run(job, tmp_path / "a", checks={})
    assert (result.outcome, result.message) == ("error", "check parity is not implemented by this release")
    assert launched(tmp_path / "a") == []


@dataclass(frozen=True)
class Curious:
    """A check that wants more of the baseline while it runs."""

    baseline_use: BaselineUse = BaselineUse.REQUIRED

    def baseline_asks(self, params: Any) -> Sequence[Ask]:
        return []

    def run(self, params: Any, context: CheckContext) -> CheckResult:
        more = (GenerateRequest(input_ids=random_prompt(3, seed=0), max_new_tokens=1),)
        assert context.ask_more is not None
        (answer,) = context.ask_more(more).of(more)
        return passed(f"{len(answer.tokens)} token")


@pytest.mark.parametrize("gpu", [None, "b200"])
def test_a_check_may_ask_more_and_the_next_one_gets_an_engine_again(
    job: Job, tmp_path: Path, gpu: str | None
) -> None:
    """Two engines cannot share GPUs, so the one under test makes room; on CPUs it stays."""
    curious = CheckSpec(name="curious", params=job.checks[0].params)
    needs = Needs(gpu=gpu, count=2) if gpu else job.needs
    both = Job(**{**_fields(job), "checks": (curious, *job.checks), "needs": needs})
    last = CheckSpec(name="drained", params=DrainedParams())
    both = Job(**{**_fields(both), "checks": (*both.checks, last)})
    results = run(both, tmp_path / "a", checks={**CHECKS, "curious": cast(Check, Curious())})
    drained = "unproven" if gpu else "passed"  # of a new engine nothing is known about the old one
    assert [result.outcome for result in results] == ["passed", "passed", drained], results
    assert launched(tmp_path / "a") == [
        BASELINE,
        ENGINE,
        "3-baseline-tp2-dcp1.log",
        *(["4-engine-tp2-dcp2.log"] if gpu else []),
    ]


def test_what_the_cache_answers_costs_the_engine_under_test_nothing(job: Job, tmp_path: Path) -> None:
    """A check after it must find the engine that the check before it used."""
    curious = CheckSpec(name="curious", params=job.checks[0].params)
    both = Job(**{**_fields(job), "checks": (curious, *job.checks)})
    options: dict[str, Any] = {"cache": tmp_path / "cache", "engine_sha": COMMIT}
    checks = {**CHECKS, "curious": cast(Check, Curious())}
    run(both, tmp_path / "a", checks=checks, **options)
    results = run(both, tmp_path / "b", checks=checks, **options)
    assert [result.outcome for result in results] == ["passed", "passed"], results
    assert launched(tmp_path / "b") == ["1-engine-tp2-dcp2.log"]


def test_a_baseline_that_dies_when_asked_more_is_no_death_of_the_engine(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*args: object, **more: object) -> None:
        raise EngineDiedError("rank 1 was killed", detail="its last lines")

    monkeypatch.setattr("harness.checks.session.ask_engine", dies)
    curious = Job(**{**_fields(job), "checks": (CheckSpec(name="curious", params=job.checks[0].params),)})
    (result,) = run(curious, tmp_path / "a", checks={"curious": cast(Check, Curious())})
    assert (result.outcome, result.message) == ("error", "baseline: engine died: rank 1 was killed")
    assert result.figures["detail"] == "its last lines"


def _fields(job: Job) -> dict[str, Any]:
    return {name: getattr(job, name) for name in job.__dataclass_fields__}
