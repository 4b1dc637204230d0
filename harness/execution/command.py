"""The command line and environment of a job: one pytest process, which `pytest_plugin` turns into the job."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from harness.execution.options import RunOptions
from harness.planning import devices_needed
from harness.suites import Job


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
    """The job as a pytest run of its suite file; plain test files that it names are spread by xdist."""
    job, options = launch.job, launch.options
    workers = ["-n", str(devices_needed(job))] if job.tests and not job.checks else []
    return [
        sys.executable,
        "-m",
        "pytest",
        str(job.suite_path),
        *workers,
        # By module and never by entry point, so that an installed and a bare checkout do the same.
        *("-p", "no:harness", "-p", "harness.pytest_plugin"),
        # Jobs run side by side in one checkout; the cache is the only thing pytest writes there.
        *("-p", "no:cacheprovider"),
        *("--harness-catalogue", str(job.catalogue)),
        *("--harness-profile", str(job.profile)),
        *(part for key, value in job.matrix.items() for part in ("--harness-matrix", f"{key}={value}")),
        *(part for fault in options.faults for part in ("--harness-fault", fault)),
        *(part for arg in options.engine_args for part in ("--harness-engine-arg", arg)),
        *_identity(launch),
        *("--harness-gated-checks", str(options.gated_checks)),
        *("--harness-attempt-dir", str(launch.attempt_dir)),
        *("--report-log", str(launch.events)),
    ]


def _identity(launch: Launch) -> list[str]:
    """What lets a job use the cache of baselines: a place for it, and what the engine is known to be."""
    engine, cache = launch.job.engine, launch.baseline_cache
    sha = None if engine is None else launch.options.engine_shas.get(engine.kind.value)
    if cache is None or sha is None:
        return []
    return ["--harness-baseline-cache", str(cache), "--harness-engine-sha", sha]


def job_environment(launch: Launch, *, outer: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The outer environment and the suite's own, with the job's devices, scratch folder and doorbell."""
    gpus = ",".join(device.removeprefix("gpu:") for device in launch.devices if device.startswith("gpu:"))
    return {
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
