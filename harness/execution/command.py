"""The command line and environment of a job: one pytest process, which `pytest_plugin` turns into the job."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from harness.execution.options import RunOptions, TargetEnvironment
from harness.planning import devices_needed
from harness.suites import Job, SourceFile

# Variables that tell an interpreter where its packages are; those of harness's own mislead another one.
_OF_OUR_INTERPRETER = frozenset({"PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What the command of one attempt is built from. `doorbell` is a pipe's write end: a byte says "look"."""

    job: Job
    attempt_dir: Path
    events: Path
    scratch: Path
    devices: tuple[str, ...]
    doorbell: int
    baseline_cache: Path | None = None
    options: RunOptions


# From a launch to its argv; the environment is `job_environment` in every case.
Command: TypeAlias = Callable[[Launch], list[str]]


def pytest_command(launch: Launch) -> list[str]:
    """The job as a pytest run of its suite file, or of the one file of the engine's own tests that it is."""
    environment = job_target(launch)
    return [
        sys.executable if environment is None else str(environment.python),
        "-m",
        "pytest",
        *(_suite(launch) if launch.job.source_file is None else _source_file(launch.job.source_file)),
        # By module and never by entry point, so that an installed and a bare checkout do the same.
        *("-p", "no:harness", "-p", "harness.pytest_plugin"),
        # Jobs run side by side in one checkout; the cache is the only thing pytest writes there.
        *("-p", "no:cacheprovider"),
        *("--harness-attempt-dir", str(launch.attempt_dir)),
        *("--report-log", str(launch.events)),
    ]


def job_target(launch: Launch) -> TargetEnvironment | None:
    """The environment of the job's target; None for the reference, which is the one that runs."""
    return launch.options.environments.get(launch.job.target)


def job_folder(launch: Launch) -> Path | None:
    """Where the process starts if not where harness itself runs."""
    environment, file = job_target(launch), launch.job.source_file
    if environment is None or environment.source is None or file is None:
        return None
    return environment.source / _split(file)[0]


def _suite(launch: Launch) -> list[str]:
    """The suite file, at the job's point; plain test files that it names are spread by xdist."""
    job, options = launch.job, launch.options
    workers = ["-n", str(devices_needed(job))] if job.tests and not job.checks else []
    return [
        str(job.suite_path),
        *workers,
        # A mark that nobody registered does nothing: a test whose `topology` is misspelt would run once, as no rank.
        "--strict-markers",
        *("--harness-catalogue", str(job.catalogue)),
        *("--harness-profile", str(job.profile)),
        *("--harness-target", str(job.target)),
        *(part for key, value in job.matrix.items() for part in ("--harness-matrix", f"{key}={value}")),
        *(part for fault in _faults(launch) for part in ("--harness-fault", fault)),
        *(part for arg in options.engine_args for part in ("--harness-engine-arg", arg)),
        *_identity(launch),
        *("--harness-gated-checks", str(options.gated_checks)),
    ]


def _faults(launch: Launch) -> list[str]:
    """An engine takes all faults of a run, tests those that they plant."""
    return [fault for fault in launch.options.faults if launch.job.engines or fault in launch.job.faults]


def _source_file(file: SourceFile) -> list[str]:
    """One file as it is, in one process; tests that the suite leaves out are skipped with its reason."""
    excused = (("--harness-excuse", test, reason) for test, reason in file.excused.items())
    return [_split(file)[1], *(part for each in excused for part in each)]


def _identity(launch: Launch) -> list[str]:
    """What lets a job use the cache of baselines: a place for it, and what the engine is known to be."""
    engine, cache = launch.job.baseline, launch.baseline_cache
    sha = None if engine is None else launch.options.engine_shas.get(engine.kind.value)
    if cache is None or sha is None:
        return []
    return ["--harness-baseline-cache", str(cache), "--harness-engine-sha", sha]


def _split(file: SourceFile) -> tuple[str, str]:
    """The folder of the checkout in which upstream starts the file (`test`, whose pytest.ini holds for it), and
    the file's path from there."""
    folder, _, below = file.path.partition("/")
    return (folder, below) if below else ("", file.path)


def job_environment(launch: Launch, *, outer: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The outer environment and the suite's own, with the job's devices, scratch folder and doorbell."""
    gpus = ",".join(device.removeprefix("gpu:") for device in launch.devices if device.startswith("gpu:"))
    environment = {
        **outer,
        **launch.job.env,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the order in which NVML counts, and so the lease
        "CUDA_VISIBLE_DEVICES": gpus,  # empty for a CPU job, which must not touch a GPU it has not leased
        "HARNESS_DEVICES": ",".join(launch.devices),
        "HARNESS_DOORBELL_FD": str(launch.doorbell),
        "PYTHONUTF8": "1",  # results and paths are UTF-8, whatever the locale of the runner says
        "PYTHONUNBUFFERED": "1",  # what a killed job printed last is what its log is read for
        "TMPDIR": str(launch.scratch),
    }
    target = job_target(launch)
    return environment if target is None else _of_target(environment, target, launch.job)


def _of_target(environment: dict[str, str], target: TargetEnvironment, job: Job) -> dict[str, str]:
    """`environment` for an interpreter of its own: what was set for ours means nothing there."""
    changed = {"PYTHONPATH": os.pathsep.join(map(str, target.path))}
    if target.source is not None:
        # It is somebody's checkout: it is read, and nothing is left in it.
        changed["PYTHONDONTWRITEBYTECODE"] = "1"
    if job.source_file is None:
        # Else the folder where harness was started would come first, and perhaps another harness with it.
        changed["PYTHONSAFEPATH"] = "1"
    left = set(_OF_OUR_INTERPRETER)
    if not environment["CUDA_VISIBLE_DEVICES"]:
        # SGLang's test utilities take its first character for a number. These environments have no CUDA.
        left.add("CUDA_VISIBLE_DEVICES")
    return {name: value for name, value in environment.items() if name not in left} | changed
