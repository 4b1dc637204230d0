"""Jobs: suite × profile × matrix point, everything that planning and execution need, in plain values.

`expand` is called after selection, once per suite and profile; it reads no clock but the day given, so that
the same suite and day always give the same jobs in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path, PurePosixPath

from harness.suites.check_list import CheckSpec
from harness.suites.extras import NEEDED_BY, Extra
from harness.suites.matrix import MatrixValue, written
from harness.suites.model import (
    EngineKind,
    EngineSpec,
    Needs,
    Profile,
    ProfileName,
    RouterSpec,
    Skip,
    SourceTests,
)
from harness.suites.suite import Suite, SuitePoint
from harness.suites.targets import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A test file of an engine's source that a job runs; `path` is relative to the source's root.

    `excused` are its tests that the suite leaves out, with reasons; `left_out` says why the suite does not want
    the file at all, `missing` why this source cannot give it. `sha256` is that of its text.
    """

    path: str
    sha256: str = ""
    excused: Mapping[str, str] = field(default_factory=dict)
    left_out: str | None = None
    missing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One thing to run. `*_s` are seconds; `timeout_s` > 2 × `launch_timeout_s` + `estimate_s`.

    `engine` is None for suites of plain tests and for PD pairs, which have `prefill` and `decode`; `baseline`
    is the same launch in the baseline's layout (of `decode` for a pair). `skip` is set only while it holds.
    `faults` are those that its tests can plant; what an engine can, its arguments say.
    `target` is what its tests look at, one of the suite's `targets` unless the user asked for another. A suite
    with `source_tests` has one job for each `source_file` once a source is known (`source_jobs`).
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
    faults: tuple[str, ...] = ()
    tags: tuple[str, ...]
    skip: Skip | None
    prefill: EngineSpec | None = None
    decode: EngineSpec | None = None
    router: RouterSpec | None = None
    env: Mapping[str, str]
    python: str | None
    targets: tuple[Target, ...] = (Target.REFERENCE,)
    target: Target = Target.REFERENCE
    source_tests: SourceTests | None = None
    source_file: SourceFile | None = None

    @property
    def engines(self) -> tuple[EngineSpec, ...]:
        """What it launches to test: its engine, or the two of its pair; none for plain tests."""
        return tuple(engine for engine in (self.engine, self.prefill, self.decode) if engine is not None)

    @property
    def left_out(self) -> str | None:
        """Why the suite itself does not want the job to run, as a phrase; None when it does."""
        if self.skip is not None:
            return f"{self.skip.reason} (until {self.skip.until})"
        return None if self.source_file is None else self.source_file.left_out

    @property
    def catalogue(self) -> Path:
        """The folder that the suite's name is relative to: as many folders up as the name has parts."""
        return self.suite_path.parents[len(PurePosixPath(self.suite).parts) - 1]


def expand(
    suite: Suite, profile: ProfileName, *, target: Target | None = None, today: date | None = None
) -> list[Job]:
    """The jobs of `suite` under `profile`, one per matrix point; none if the suite lacks the profile.

    `target` is what the user asked for, also of a suite that has it not; without it the suite's first counts.
    `today` (UTC by default) decides whether a declared skip still holds: it does through its last day.
    """
    day = today or datetime.now(UTC).date()
    return [
        _job(suite, point, point.file.profiles.by_name()[profile], profile=profile, target=target, day=day)
        for point in suite.points
        if profile in point.file.profiles.by_name()
    ]


def extras_needed(job: Job, engine_args: Mapping[str, str]) -> tuple[Extra, ...]:
    """Those that the suite names, and those that arguments of its reference engines need; `engine_args` come on top
    of the suite's."""
    needed = list(job.needs.extras)
    for engine in job.engines:
        if engine.kind is EngineKind.REFERENCE:
            args = {**engine.args, **engine_args}
            needed += [extra for (name, value), extra in NEEDED_BY.items() if args.get(name) == value]
    if job.prefill is None and Extra.NIXL not in job.needs.extras:
        # A single engine hands nothing over, so it never opens a transport.
        needed = [extra for extra in needed if extra is not Extra.NIXL]
    return tuple(dict.fromkeys(needed))


def job_id(suite: str, profile: ProfileName, matrix: Mapping[str, MatrixValue]) -> str:
    """`dcp/parity_dcp4@cpu`, or `dcp/x@cpu[dcp=4,page=16]` at a matrix point."""
    point = ",".join(f"{name}={written(value)}" for name, value in matrix.items())
    return f"{suite}@{profile.value}" + (f"[{point}]" if point else "")


def _job(
    suite: Suite, point: SuitePoint, how: Profile, *, profile: ProfileName, target: Target | None, day: date
) -> Job:
    file = point.file
    return Job(
        id=job_id(suite.name, profile, point.matrix),
        suite=suite.name,
        suite_path=suite.path,
        profile=profile,
        matrix=point.matrix,
        needs=how.needs,
        estimate_s=how.estimate,
        timeout_s=how.timeout,
        launch_timeout_s=how.launch_timeout,
        engine=how.engine,
        baseline=_baseline(point, how),
        checks=point.checks[profile],
        tests=point.tests,
        faults=file.faults,
        tags=file.tags,
        skip=file.skip if file.skip and day <= file.skip.until else None,
        prefill=how.prefill,
        decode=how.decode,
        router=how.router,
        env=file.env,
        python=file.python,
        targets=file.all_targets,
        target=target or file.all_targets[0],
        source_tests=file.source_tests,
    )


def _baseline(point: SuitePoint, profile: Profile) -> EngineSpec | None:
    if profile.tested is None or point.file.baseline is None:
        return None
    return profile.tested.with_parallel(**point.file.baseline.parallel.changes())
