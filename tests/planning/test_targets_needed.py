"""Why a job cannot look at its target: sentences, from what the caller knows of environments."""

from __future__ import annotations

from collections.abc import Callable

from harness.planning import ReadyPool, cannot_run
from harness.suites import Job, SourceFile, SourceTests, Target

MakeJob = Callable[..., Job]
POOLS = {"cpu": ReadyPool(name="cpu", devices=("cpu:0",))}
BOTH = (Target.REFERENCE, Target.SGLANG)


def why(job: Job, environments: dict[str, str | None] | None = None) -> str | None:
    return cannot_run(job, POOLS, launchable=(), checks=(), environments=environments or {})


def test_the_reference_needs_no_environment(make_job: MakeJob) -> None:
    assert why(make_job("a", cpu=1, kind=None, targets=BOTH)) is None


def test_a_target_needs_its_environment(make_job: MakeJob) -> None:
    job = make_job("a", cpu=1, kind=None, targets=BOTH, target=Target.SGLANG)
    assert why(job, {"sglang": None}) is None
    assert why(job, {"sglang": "none is built; make it with: make sglang"}) == (
        "none is built; make it with: make sglang"
    )
    assert why(job) == "there is no environment for sglang"


def test_a_target_that_the_suite_has_not(make_job: MakeJob) -> None:
    job = make_job("a", cpu=1, kind=None, target=Target.SGLANG)
    assert why(job, {"sglang": None}) == "the suite has no target sglang (it has reference)"


def test_an_environment_that_no_target_has(make_job: MakeJob) -> None:
    job = make_job("a", cpu=1, kind=None, python="other")
    assert why(job) == "virtual environment other cannot be used by this release"


def test_the_engines_own_tests_need_a_source(make_job: MakeJob) -> None:
    tests = SourceTests.model_validate({"files": ("test/test_x.py",)})
    known = {
        "cpu": 1,
        "kind": None,
        "targets": (Target.SGLANG,),
        "target": Target.SGLANG,
        "source_tests": tests,
    }
    told = why(make_job("s/own", **known), {"sglang": None})
    assert told == "the tests come from a checkout of the engine: harness run s/own --source PATH"
    there = SourceFile(path="test/test_x.py")
    assert why(make_job("a", **known, source_file=there), {"sglang": None}) is None
    gone = SourceFile(path="test/test_x.py", missing="this source has no such file")
    assert why(make_job("a", **known, source_file=gone), {"sglang": None}) == "this source has no such file"
