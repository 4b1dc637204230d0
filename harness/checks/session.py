"""One job's checks against one engine at a time: baseline first, then the engine under test.

Phases: (1) before the first check, everything that any check wants from dcp=1 is asked of baseline engines,
which are stopped again; (2) the engine under test is launched and kept as long as checks want the same
launch; (3) `close` stops what runs. Failure rule: a launch that failed is not tried again, every later check
that needs it repeats the reason; an engine that died stays dead. A baseline that failed is an error of the
checks that compare, and of no other.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.checks.base import Baseline, Check, CheckContext, CheckResult, RequestGroup
from harness.engines import LaunchSpec, ReferenceEngine
from harness.engines.arguments import ArgValue
from harness.errors import DeadlineError, EngineDiedError, EngineError, HarnessError
from harness.suites import CheckSpec, EngineSpec, Job
from harness.verdict import CheckOutcome


class JobSession:
    """Runs the checks of one job in one process. `logs` is a folder for engine logs."""

    def __init__(
        self,
        job: Job,
        *,
        checks: Mapping[str, Check],
        logs: Path,
        faults: Sequence[str] = (),
        engine_args: Mapping[str, ArgValue] | None = None,
    ) -> None:
        self._job = job
        self._checks = checks
        self._logs = logs
        self._faults = tuple(faults)
        self._engine_args = dict(engine_args or {})
        self._launches = 0
        self._engine: ReferenceEngine | None = None
        self._refused: list[tuple[LaunchSpec, HarnessError]] = []
        self._baselines: list[tuple[LaunchSpec, Baseline | HarnessError]] = []

    def run(self, spec: CheckSpec) -> CheckResult:
        """Run one check to its result; an engine's or a deadline's failure becomes an `error` result."""
        check = self._checks.get(spec.name)
        if check is None:
            return _error(f"check {spec.name} is not implemented by this release")
        self._ask_baselines()
        try:
            launch, baseline = self._launch_of(spec), self._baseline_of(spec)
        except HarnessError as error:
            return _error_of(error)
        if isinstance(baseline, HarnessError):
            if check.needs_baseline:
                return _error_of(baseline, about="baseline: ")
            baseline = None
        try:
            engine = self._engine_for(launch)
            context = CheckContext(client=engine.client, baseline=baseline)
            with engine.client.deadline(f"check {spec.name}", self._check_seconds()):
                return check.run(spec.params, context)
        except HarnessError as error:
            if isinstance(error, DeadlineError) and self._engine is not None:
                self._engine.dump_stacks()
            return _error_of(error)

    def close(self) -> None:
        """Stop the engine, if one runs. Safe to call twice."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.stop()

    def logs(self) -> list[Path]:
        """The engine logs written so far, in the order of the launches."""
        return sorted(self._logs.glob("*-tp*.log"))

    def _check_seconds(self) -> float:
        """What the job's time leaves once both launches took all of theirs; the loader proved it positive."""
        return self._job.timeout_s - 2 * self._job.launch_timeout_s

    def _baseline_of(self, spec: CheckSpec) -> Baseline | HarnessError | None:
        """What the check compares with, or why there is nothing although the suite declares it."""
        if self._job.baseline is None:
            return None
        wanted = self._launch_of(spec, baseline=True)
        return next((found for launch, found in self._baselines if launch == wanted), None)

    def _launch_of(self, spec: CheckSpec, *, baseline: bool = False) -> LaunchSpec:
        """The launch that a check wants: the profile's engine, with the check's own model and dtype if any."""
        engine = self._job.baseline if baseline else self._job.engine
        if engine is None:
            raise EngineError(
                f"check {spec.name} needs an engine, and profile {self._job.profile} declares none"
            )
        launch = self._to_launch(engine, faults=() if baseline else self._faults)
        model = getattr(spec.params, "model", None) or launch.model
        return replace(launch.with_args(dtype=getattr(spec.params, "dtype", None)), model=model)

    def _to_launch(self, engine: EngineSpec, *, faults: tuple[str, ...]) -> LaunchSpec:
        parallel = engine.parallel.config()
        return LaunchSpec(
            kind=engine.kind.value,
            model=engine.model,
            parallel=parallel,
            args={**engine.args, **self._engine_args},
            env=engine.env,
            launch_timeout_s=engine.launch_timeout,
            # A fault is a regression of the engine under test; with dcp 1 there is nothing to regress.
            faults=faults if parallel.dcp_size > 1 else (),
        )

    def _engine_for(self, launch: LaunchSpec) -> ReferenceEngine:
        self._raise_if_refused(launch)
        if self._engine is not None and self._engine.spec == launch:
            self._engine.check_alive()
            return self._engine
        self.close()
        self._engine = self._launch(launch, name="engine")
        return self._engine

    def _launch(self, launch: LaunchSpec, *, name: str) -> ReferenceEngine:
        self._launches += 1
        parallel = launch.parallel
        log = self._logs / f"{self._launches}-{name}-tp{parallel.tp_size}-dcp{parallel.dcp_size}.log"
        try:
            return ReferenceEngine.launch(launch, log=log)
        except HarnessError as error:
            self._refused.append((launch, error))
            raise

    def _raise_if_refused(self, launch: LaunchSpec) -> None:
        for refused, error in self._refused:
            if refused == launch:
                raise error

    def _ask_baselines(self) -> None:
        """Ask what has not been asked yet: everything before the first check, nothing after it."""
        for launch, groups in self._wanted_baselines():
            if any(done == launch for done, _ in self._baselines):
                continue
            try:
                self._baselines.append((launch, self._ask(launch, groups)))
            except HarnessError as error:
                self._baselines.append((launch, error))

    def _wanted_baselines(self) -> list[tuple[LaunchSpec, list[RequestGroup]]]:
        """Every baseline launch of this job with all that is asked of it."""
        wanted: list[tuple[LaunchSpec, list[RequestGroup]]] = []
        if self._job.baseline is None:
            return wanted
        for spec in self._job.checks:
            check = self._checks.get(spec.name)
            if check is None or not check.needs_baseline:
                continue
            launch = self._launch_of(spec, baseline=True)
            groups = next((groups for known, groups in wanted if known == launch), None)
            if groups is None:
                wanted.append((launch, groups := []))
            groups += [group for group in check.baseline_groups(spec.params) if group not in groups]
        return wanted

    def _ask(self, launch: LaunchSpec, groups: list[RequestGroup]) -> Baseline:
        """Answer everything on one baseline engine, then stop it: its devices are the next engine's."""
        begin = time.monotonic()
        engine = self._launch(launch, name="baseline")
        try:
            with engine.client.deadline("baseline", self._check_seconds()):
                answers = {group: tuple(engine.client.generate_batch(list(group))) for group in groups}
                info = engine.client.server_info()
            return Baseline(info=info, answers=answers, origin=f"fresh, +{time.monotonic() - begin:.0f} s")
        except DeadlineError:
            engine.dump_stacks()
            raise
        finally:
            engine.stop()


def _error_of(error: HarnessError, *, about: str = "") -> CheckResult:
    """The `error` result of an exception, with the facts that its type carries."""
    died = "engine died: " if isinstance(error, EngineDiedError) else ""
    return _error(
        f"{about}{died}{error}",
        deadline=error.scope if isinstance(error, DeadlineError) else "",
        detail=error.detail if isinstance(error, EngineError) else "",
    )


def _error(message: str, **figures: str) -> CheckResult:
    return CheckResult(
        outcome=CheckOutcome.ERROR,
        message=message,
        figures={key: value for key, value in figures.items() if value},
    )
