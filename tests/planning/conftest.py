"""Jobs for planning tests: only needs, estimate and name matter here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.suites import EngineSpec, Job, Needs, ProfileName


@pytest.fixture(scope="session")
def make_job() -> Callable[..., Job]:
    """`make_job("a", cpu=2, estimate=30)` or `make_job("a", gpu="h200", count=4)`."""

    def make(
        name: str,
        *,
        cpu: int | None = None,
        gpu: str | None = None,
        count: int | None = None,
        estimate: float = 10.0,
        kind: str | None = "reference",
        **others: Any,
    ) -> Job:
        profile = ProfileName.GPU if gpu else ProfileName.CPU
        engine = EngineSpec.model_validate({"kind": kind, "model": "m"}) if kind else None
        values: dict[str, Any] = {
            "id": f"{name}@{profile}",
            "suite": name,
            "suite_path": Path(f"suites/{name}.yaml"),
            "profile": profile,
            "matrix": {},
            "needs": Needs(cpu=cpu, gpu=gpu, count=count),
            "estimate_s": estimate,
            "timeout_s": 10 * estimate,
            "launch_timeout_s": estimate,
            "engine": engine,
            "baseline": None,
            "checks": (),
            "tests": (),
            "tags": (),
            "skip": None,
            "env": {},
            "python": None,
        }
        return Job(**values | others)

    return make
