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
KERNELS, TRITON, PAIR = job_of("kernels/dcp_decode"), job_of("dcp/triton_dcp"), job_of("dcp/pd_dcp4")
SKIPPED = replace(
    CPU, id="dcp/skipped@cpu", skip=Skip.model_validate({"reason": "flaky disk", "until": "2027-01-01"})
)


def reach(
    *jobs: Job,
    cannot: dict[str, str] | None = None,
    faults: tuple[str, ...] = ("lse-base",),
    args: tuple[str, ...] = (),
) -> str | None:
    reasons = cannot or {}
    return check_reach(jobs, cannot=lambda job: reasons.get(job.id), faults=faults, engine_args=args)


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
    assert reach(CPU, LAYOUT, faults=()) is None
    assert (
        reach(LAYOUT, faults=(), args=("comm=gloo",))
        == "--engine-arg comm=gloo: does not reach dcp/layout_unit@cpu (no engine)"
    )


@pytest.mark.parametrize(
    ("fault", "job", "why"),
    [
        # What a fault breaks is run by torch and Triton engines, by Triton alone, or by pairs alone.
        ("lse-base", CPU, None),
        ("lse-base", TRITON, None),
        ("lse-base", PAIR, None),
        ("empty-split", TRITON, None),
        ("empty-split", CPU, "attention-backend torch"),
        ("empty-split", PAIR, "attention-backend torch"),
        ("pd-swap", PAIR, None),
        ("pd-swap", CPU, "no pair of engines"),
        # Tests plant what their suite declares.
        ("empty-split", KERNELS, None),
        ("lse-unscaled", KERNELS, None),
        ("len-ceil", KERNELS, "its tests plant others"),
        ("len-ceil", LAYOUT, "no engine"),
    ],
)
def test_a_fault_reaches_what_runs_the_code_that_it_breaks(fault: str, job: Job, why: str | None) -> None:
    if why is None:
        assert reach(job, faults=(fault,)) is None
    else:
        with pytest.raises(UsageError, match=rf"--fault {fault}: nothing to act on.*{job.id} \({why}\)"):
            reach(job, faults=(fault,))


def test_the_backend_may_be_an_argument_of_the_run() -> None:
    assert reach(CPU, faults=("stride",), args=("attention-backend=triton",)) is None
    with pytest.raises(UsageError, match="attention-backend torch"):
        reach(TRITON, faults=("stride",), args=("attention-backend=torch",))


def test_each_fault_must_reach_something_and_misses_are_told_apart() -> None:
    with pytest.raises(UsageError, match="--fault pd-swap: nothing to act on"):
        reach(CPU, TRITON, faults=("lse-base", "pd-swap"))
    told = reach(CPU, KERNELS, TRITON, faults=("stride", "lse-base", "len-ceil"), args=("seed=1",))
    assert told == (
        "--fault stride: does not reach dcp/parity_dcp4@cpu (attention-backend torch); "
        "--fault lse-base, --fault len-ceil: does not reach kernels/dcp_decode@cpu (its tests plant others); "
        "--engine-arg seed=1: does not reach kernels/dcp_decode@cpu (no engine)"
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
