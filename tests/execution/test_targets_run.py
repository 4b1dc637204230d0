"""The process of a job that looks at a package: its interpreter, path, folder, and name in the results."""

from __future__ import annotations

import json
import os
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from run_bench import Bench, new_job

from harness.execution import Launch, RunOptions, TargetEnvironment, pytest_command
from harness.execution.command import job_environment, job_folder
from harness.suites import SourceFile, Target
from harness.verdict import Verdict

THERE = TargetEnvironment(
    python=Path("/envs/sglang/bin/python"), path=(Path("/harness"),), label="sglang 0.5.18"
)
SOURCE = TargetEnvironment(
    python=Path("/envs/sglang/bin/python"),
    path=(Path("/sg/python"), Path("/harness")),
    label="sglang source abc",
    source=Path("/sg"),
)
PACKAGE = {"targets": (Target.SGLANG,), "target": Target.SGLANG, "checks": ()}


def launch(
    environment: TargetEnvironment = THERE, *, devices: tuple[str, ...] = ("cpu:0",), **job: object
) -> Launch:
    return Launch(
        job=new_job("dcp/x", **(PACKAGE | job)),
        attempt_dir=Path("attempt"),
        events=Path("attempt/events.jsonl"),
        scratch=Path("scratch"),
        devices=devices,
        doorbell=7,
        options=RunOptions(environments={"sglang": environment}),
    )


def test_tests_of_a_package_start_in_its_environment() -> None:
    command = pytest_command(launch(tests=(Path("suites/dcp/test_a.py"),), cpu=2))
    assert command[:4] == ["/envs/sglang/bin/python", "-m", "pytest", "suites/dcp/x.yaml"]
    pairs = list(pairwise(command))
    for pair in (("--harness-target", "sglang"), ("-n", "2"), ("-p", "harness.pytest_plugin")):
        assert pair in pairs
    assert job_folder(launch()) is None


def test_a_job_of_the_reference_starts_as_ever() -> None:
    made = launch(targets=(Target.REFERENCE, Target.SGLANG), target=Target.REFERENCE)
    assert pytest_command(made)[0] == sys.executable
    outer = {"PYTHONPATH": "/mine"}
    environment = job_environment(made, outer=outer)
    assert (environment["PYTHONPATH"], environment["CUDA_VISIBLE_DEVICES"]) == ("/mine", "")
    assert "PYTHONSAFEPATH" not in environment


def test_one_file_of_the_engines_own_tests() -> None:
    file = SourceFile(path="test/registered/dcp/test_a.py", excused={"T::test_b[x=1]": "no hub"})
    made = launch(SOURCE, source_file=file, cpu=2)
    command = pytest_command(made)
    assert command[3] == "registered/dcp/test_a.py"
    at = command.index("--harness-excuse")
    assert command[at : at + 3] == ["--harness-excuse", "T::test_b[x=1]", "no hub"]
    assert "-n" not in command
    assert not any("x.yaml" in part for part in command)
    assert "--strict-markers" not in command  # the engine's marks are its own
    assert job_folder(made) == Path("/sg/test")
    above = launch(SOURCE, source_file=SourceFile(path="test_a.py"))
    assert (pytest_command(above)[3], job_folder(above)) == ("test_a.py", Path("/sg"))


def test_the_environment_of_such_a_job() -> None:
    outer = {"PYTHONPATH": "/mine", "PYTHONHOME": "/py", "VIRTUAL_ENV": "/v", "CUDA_VISIBLE_DEVICES": "0"}
    plain = job_environment(launch(env={"HF_HUB_OFFLINE": "1"}), outer=outer)
    assert plain["PYTHONPATH"] == "/harness"
    assert plain["HF_HUB_OFFLINE"] == "1"
    assert plain["PYTHONSAFEPATH"] == "1"
    assert not {"PYTHONHOME", "VIRTUAL_ENV", "CUDA_VISIBLE_DEVICES", "PYTHONDONTWRITEBYTECODE"} & plain.keys()
    own = job_environment(launch(SOURCE, source_file=SourceFile(path="test/test_a.py")), outer=outer)
    assert own["PYTHONPATH"] == os.pathsep.join(["/sg/python", "/harness"])
    assert own["PYTHONDONTWRITEBYTECODE"] == "1"
    assert "PYTHONSAFEPATH" not in own
    assert job_environment(launch(devices=("gpu:3",)), outer=outer)["CUDA_VISIBLE_DEVICES"] == "3"


def test_every_result_names_the_package(bench: Bench) -> None:
    done = bench.run(
        {"a": "check('test_a')"},
        new_job("a", **PACKAGE),
        new_job("b", **(PACKAGE | {"targets": (Target.REFERENCE,)})),
        cannot=lambda job: None if job.suite == "a" else "no such target",
        environments={"sglang": THERE},
    )
    assert {job.suite: job.engine_sha for job in done.jobs} == {"a": "sglang 0.5.18", "b": None}


def test_files_that_the_suite_does_not_want_are_skipped_with_the_reason(bench: Bench) -> None:
    file = SourceFile(path="test/test_a.py", left_out="registered for cuda only")
    (job,) = bench.run({}, new_job("a", **PACKAGE, source_file=file)).jobs
    assert (job.verdict, job.reason) == (Verdict.SKIPPED, "registered for cuda only")


@pytest.mark.parametrize(
    ("excused", "verdict"), [({"test_b": "why"}, "passed"), ({"test_c": "why"}, "failed")]
)
def test_only_tests_that_the_suite_leaves_out_may_be_skipped(
    bench: Bench, excused: dict[str, str], verdict: str
) -> None:
    file = SourceFile(path="test/test_a.py", excused=excused)
    skip = {"$report_type": "TestReport", "nodeid": "x.py::test_b", "when": "setup", "outcome": "skipped"}
    skip |= {"longrepr": ["x.py", 1, "Skipped: why"], "duration": 0.0}
    code = f"check('test_a'); write({json.dumps(skip)!r} + chr(10))"
    (job,) = bench.run({"a": code}, new_job("a", **PACKAGE, source_file=file)).jobs
    assert (job.verdict, len(job.last_checks)) == (verdict, 2)
