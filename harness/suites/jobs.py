"""Jobs: suite × profile × matrix point, everything that planning and execution need, in plain values.

`expand` is called after selection, once per suite and profile; it reads no clock but the day given, so that
the same suite and day always give the same jobs in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path, PurePosixPath

from harness.suites.check_list import CheckSpec
from harness.suites.matrix import MatrixValue, written
from harness.suites.model import EngineSpec, Needs, Profile, ProfileName, RouterSpec, Skip
from harness.suites.suite import Suite, SuitePoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One thing to run. `*_s` are seconds; `timeout_s` > 2 × `launch_timeout_s` + `estimate_s`.

    `engine` is None for suites of plain tests and for PD pairs, which have `prefill` and `decode`; `baseline`
    is the same launch in the baseline's layout (of `decode` for a pair). `skip` is set only while it holds.
    """

    id: str
    suite: str
    suite_path: Path
    profile: ProfileName
    matrix: Mapping[str, MatrixValue]
    needs: Needs
    estimate_s: float
    timeout_s: float
    launch_timeout_s: float
    engine: EngineSpec | None
    baseline: EngineSpec | None
    checks: tuple[CheckSpec, ...]
    tests: tuple[Path, ...]
    tags: tuple[str, ...]
    skip: Skip | None
    prefill: EngineSpec | None = None
    decode: EngineSpec | None = None
    router: RouterSpec | None = None
    env: Mapping[str, str]
    python: str | None

    @property
    def catalogue(self) -> Path:
        """The folder that the suite's name is relative to: as many folders up as the name has parts."""
        return self.suite_path.parents[len(PurePosixPath(self.suite).parts) - 1]


def expand(suite: Suite, profile: ProfileName, *, today: date | None = None) -> list[Job]:
    """The jobs of `suite` under `profile`, one per matrix point; none if the suite lacks the profile.

    `today` (UTC by default) decides whether a declared skip still holds: it does through its last day.
    """
    day = today or datetime.now(UTC).date()
    return [
        _job(suite, point, profile, point.file.profiles.by_name()[profile], day)
        for point in suite.points
        if profile in point.file.profiles.by_name()
    ]


def job_id(suite: str, profile: ProfileName, matrix: Mapping[str, MatrixValue]) -> str:
    """`dcp/parity_dcp4@cpu`, or `dcp/x@cpu[dcp=4,page=16]` at a matrix point."""
    point = ",".join(f"{name}={written(value)}" for name, value in matrix.items())
    return f"{suite}@{profile.value}" + (f"[{point}]" if point else "")


def _job(suite: Suite, point: SuitePoint, name: ProfileName, profile: Profile, day: date) -> Job:
    file = point.file
    return Job(
        id=job_id(suite.name, name, point.matrix),
        suite=suite.name,
        suite_path=suite.path,
        profile=name,
        matrix=point.matrix,
        needs=profile.needs,
        estimate_s=profile.estimate,
        timeout_s=profile.timeout,
        launch_timeout_s=profile.launch_timeout,
        engine=profile.engine,
        baseline=_baseline(point, profile),
        checks=point.checks[name],
        tests=point.tests,
        tags=file.tags,
        skip=file.skip if file.skip and day <= file.skip.until else None,
        prefill=profile.prefill,
        decode=profile.decode,
        router=profile.router,
        env=file.env,
        python=file.python,
    )


def _baseline(point: SuitePoint, profile: Profile) -> EngineSpec | None:
    tested = profile.engine or profile.decode
    if tested is None or point.file.baseline is None:
        return None
    return tested.with_parallel(**point.file.baseline.parallel.changes())
