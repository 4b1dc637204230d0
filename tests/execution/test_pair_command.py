"""The command of a job on a pair: its baseline may come from the cache, as that of a single engine."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from run_bench import new_job

from harness.execution import Launch, RunOptions
from harness.execution.command import pytest_command
from harness.suites import EngineSpec


def command(folder: Path, *, options: RunOptions | None = None, **of_job: Any) -> list[str]:
    launch = Launch(
        job=new_job("a", suite_path=folder / "suites/a.yaml", **of_job),
        attempt_dir=folder,
        events=folder / "events.jsonl",
        scratch=folder,
        devices=("cpu:0",),
        doorbell=3,
        baseline_cache=folder / "baselines",
        options=options or RunOptions(engine_shas={"reference": "0123abc"}),
    )
    return pytest_command(launch)


def test_the_baseline_of_a_pair_may_be_cached(tmp_path: Path) -> None:
    ours = EngineSpec.model_validate({"kind": "reference", "model": "m"})
    for engines in ({"engine": ours}, {"prefill": ours, "decode": ours}):
        argv = command(tmp_path, baseline=ours, **engines)
        assert argv[argv.index("--harness-baseline-cache") + 1] == str(tmp_path / "baselines")
        assert argv[argv.index("--harness-engine-sha") + 1] == "0123abc"


def test_without_a_baseline_there_is_nothing_to_cache(tmp_path: Path) -> None:
    ours = EngineSpec.model_validate({"kind": "reference", "model": "m"})
    assert "--harness-baseline-cache" not in command(tmp_path, engine=ours)


def test_tests_get_the_faults_that_they_plant_and_engines_all(tmp_path: Path) -> None:
    ours = EngineSpec.model_validate({"kind": "reference", "model": "m"})
    options = RunOptions(faults=("stride", "pd-swap"))
    for job, faults in (
        ({"faults": ("stride",)}, ["stride"]),
        ({}, []),
        ({"engine": ours}, ["stride", "pd-swap"]),
        ({"prefill": ours, "decode": ours}, ["stride", "pd-swap"]),
    ):
        argv = command(tmp_path, options=options, **job)
        assert [after for flag, after in pairwise(argv) if flag == "--harness-fault"] == faults
