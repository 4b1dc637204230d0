"""`--fault` and `--engine-arg`: a run under the name of a fault that reached nothing must not look healthy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from command_line import ROOT, assert_usage_error, harness

from harness.cli.overrides import check_reach, known_engine_args, known_faults
from harness.errors import UsageError
from harness.suites import Job, ProfileName, Skip, expand, load_suite

SUITES = ROOT / "suites"


def job_of(name: str, profile: ProfileName = ProfileName.CPU) -> Job:
    (job,) = expand(load_suite(SUITES / f"{name}.yaml", root=SUITES), profile)
    return job


LAYOUT = job_of("dcp/layout_unit")
CPU, GPU = job_of("dcp/parity_dcp4"), job_of("dcp/parity_dcp4", ProfileName.GPU)
SKIPPED = replace(
    CPU, id="dcp/skipped@cpu", skip=Skip.model_validate({"reason": "flaky disk", "until": "2027-01-01"})
)


def reach(
    *jobs: Job, cannot: dict[str, str] | None = None, fault: bool = True, arg: bool = False
) -> str | None:
    reasons = cannot or {}
    return check_reach(
        jobs,
        cannot=lambda job: reasons.get(job.id),
        faults=["lse-base"] if fault else [],
        engine_args=["comm=gloo"] if arg else [],
    )


@pytest.mark.parametrize(
    ("jobs", "cannot", "says"),
    [
        ([LAYOUT], {}, "dcp/layout_unit@cpu (no engine)"),
        ([GPU], {}, "dcp/parity_dcp4@gpu (engine sglang)"),
        ([SKIPPED, LAYOUT], {}, "dcp/skipped@cpu (skipped: flaky disk (until 2027-01-01))"),
        ([CPU, LAYOUT], {CPU.id: "no slots"}, "dcp/parity_dcp4@cpu (no slots)"),
    ],
)
def test_a_fault_that_reaches_no_job_is_refused(jobs: list[Job], cannot: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match="--fault lse-base: nothing to act on") as caught:
        reach(*jobs, cannot=cannot)
    assert says in str(caught.value)


def test_healthy_jobs_of_a_faulty_run_are_named_and_others_are_not() -> None:
    assert reach(CPU) is None
    assert reach(CPU, SKIPPED) is None
    assert reach(CPU, GPU, cannot={GPU.id: "no GPU"}) is None
    assert reach(CPU, LAYOUT) == "--fault lse-base: does not reach dcp/layout_unit@cpu (no engine)"
    many = [replace(LAYOUT, id=f"{number}@cpu") for number in range(9)]
    assert str(reach(CPU, *many)).endswith("3@cpu (no engine), 5 more")


def test_an_argument_that_reaches_nothing_is_told_only() -> None:
    assert reach(CPU, LAYOUT, fault=False) is None
    assert (
        reach(LAYOUT, fault=False, arg=True)
        == "--engine-arg comm=gloo: does not reach dcp/layout_unit@cpu (no engine)"
    )


def test_names_are_known_and_each_counts_once() -> None:
    assert known_faults(["lse-base", "len-ceil", "lse-base"]) == ("lse-base", "len-ceil")
    assert known_engine_args(["comm=gloo", "seed=1"]) == ("comm=gloo", "seed=1")
    for wrong, says in {"comm": "NAME=VALUE", "=x": "NAME=VALUE", "com=gloo": "did you mean 'comm'"}.items():
        with pytest.raises(UsageError, match=says):
            known_engine_args([wrong])


def test_the_command_refuses_before_anything_starts(tmp_path: Path) -> None:
    done = harness("run", "dcp/layout_unit", "--fault", "lse-base", reports=tmp_path / "reports")
    assert_usage_error(done, "--fault lse-base", "nothing to act on", "dcp/layout_unit@cpu")
    assert not (tmp_path / "reports").exists()
