"""One job's checks against one engine, or one pair, at a time: baseline first, then the engine under test.

Phases: (1) before the first check, everything that any check wants from dcp=1 is taken from the cache or asked
of baseline engines, which are stopped again; (2) the engine under test is launched and kept as long as checks
want the same launch; a check that wants more of the baseline in between has the two change places; (3) `close`
stops what runs. Failure rule: a launch that failed is not tried again, every later check that needs it repeats
the reason; an engine that died stays dead. A baseline that failed is an error of the checks that compare, and of
no other.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from harness.checks.asks import Answers, Ask, ask_engine, complete, log_answers
from harness.checks.base import Baseline, BaselineUse, Check, CheckContext, CheckResult
from harness.checks.baseline_cache import BaselineCache, machine_kind
from harness.checks.launches import Spec, as_check_wants, to_launch, to_test
from harness.checks.question_log import QuestionLog
from harness.checks.reference_file import load_baselines
from harness.engines import LaunchSpec, PDPair, RunningEngine, launch_engine
from harness.engines.arguments import ArgValue
from harness.errors import DeadlineError, EngineDiedError, EngineError, HarnessError, NoAnswerError
from harness.suites import CheckSpec, EngineSpec, Job
from harness.verdict import QUESTIONS_FILE, CheckOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """What a run adds to a job. `logs` is the folder for engine logs; `references` the file of recorded baselines
    and `cache` the folder of cached ones (None: none). `engine_sha` is what the engine is known to be, and
    `gated_checks` how many checks of the run share one allowance of false alarms."""

    logs: Path
    faults: tuple[str, ...] = ()
    engine_args: Mapping[str, ArgValue] = field(default_factory=dict)
    references: Path | None = None
    cache: Path | None = None
    engine_sha: str | None = None
    gated_checks: int = 1
    # Only a job of a run has its question records read and kept.
    keep_questions: bool = False


class JobSession:
    """Runs the checks of one job in one process."""

    def __init__(self, job: Job, *, checks: Mapping[str, Check], options: SessionOptions) -> None:
        self._job = job
        self._checks = checks
        self._options = options
        self._log = QuestionLog(options.logs / QUESTIONS_FILE if options.keep_questions else None)
        self._cache = BaselineCache(
            folder=options.cache,
            engine_sha=options.engine_sha,
            machine=machine_kind(job.needs.gpu),
            env=job.env,
        )
        self._launches = 0
        self._engine: RunningEngine | None = None
        self._stopped: list[Spec] = []
        self._refused: list[tuple[Spec, HarnessError]] = []
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
            return error_result(error)
        if isinstance(baseline, HarnessError):
            if check.baseline_use is not BaselineUse.NEVER:
                return error_result(baseline, about="baseline: ")
            baseline = None
        try:
            engine = self._engine_for(launch)
            with engine.client.deadline(f"check {spec.name}", self._check_seconds()):
                return check.run(spec.params, self._context(spec, engine, baseline))
        except HarnessError as error:
            if isinstance(error, DeadlineError) and self._engine is not None:
                self._engine.dump_stacks()
            return error_result(self._with_death(error))

    def _with_death(self, error: HarnessError) -> HarnessError:
        """The error, or who died where that is behind it: a router outlives its engines, and its words may be any."""
        known = isinstance(error, EngineDiedError) or not isinstance(error, EngineError)
        if known or self._engine is None or not (why := self._engine.why_dead()):
            return error
        return EngineDiedError(f"{why}; seen as: {error}")

    def _context(self, spec: CheckSpec, engine: RunningEngine, baseline: Baseline | None) -> CheckContext:
        references = self._options.references if spec.params.gated else None
        return CheckContext(
            client=engine.client,
            baseline=baseline,
            model=engine.spec.model,
            references=() if references is None else load_baselines(references),
            log=self._log,
            gated_checks=self._options.gated_checks,
            ask_more=None if baseline is None else partial(self._ask_more, spec),
            relaunched=engine.started_anew or engine.spec in self._stopped,
            pair=engine if isinstance(engine, PDPair) else None,
        )

    def close(self) -> None:
        """Stop the engine, if one runs. Safe to call twice."""
        engine, self._engine = self._engine, None
        if engine is not None:
            self._stopped.append(engine.spec)
            engine.stop()

    def logs(self) -> list[Path]:
        """The engine logs written so far, in the order of the launches."""
        return sorted(self._options.logs.glob("[0-9]*-*.log"), key=_launch_number)

    def _check_seconds(self) -> float:
        """What the job's time leaves once both launches took all of theirs; the loader proved it positive."""
        return self._job.timeout_s - 2 * self._job.launch_timeout_s

    def _baseline_of(self, spec: CheckSpec) -> Baseline | HarnessError | None:
        """What the check compares with, or why there is nothing although the suite declares it."""
        if self._job.baseline is None:
            return None
        wanted = self._baseline_launch(self._job.baseline, spec)
        return next((found for launch, found in self._baselines if launch == wanted), None)

    def _launch_of(self, spec: CheckSpec) -> Spec:
        """The launch that a check wants: the profile's engines, with the check's own model and dtype if any."""
        tested = to_test(self._job, args=self._options.engine_args, faults=self._options.faults)
        if tested is None:
            raise EngineError(
                f"check {spec.name} needs an engine, and profile {self._job.profile} declares none"
            )
        return as_check_wants(tested, spec.params)

    def _baseline_launch(self, engine: EngineSpec, spec: CheckSpec) -> LaunchSpec:
        """What a check compares with: one engine, also where the engine under test is a pair."""
        return as_check_wants(to_launch(engine, args=self._options.engine_args), spec.params)

    def _engine_for(self, launch: Spec) -> RunningEngine:
        self._raise_if_refused(launch)
        if self._engine is not None and self._engine.spec == launch:
            self._engine.check_alive()
            return self._engine
        self.close()
        self._engine = self._launch(launch, name="engine")
        return self._engine

    def _launch(self, launch: Spec, *, name: str) -> RunningEngine:
        self._launches += 1
        try:
            return launch_engine(launch, folder=self._options.logs, number=self._launches, name=name)
        except HarnessError as error:
            self._refused.append((launch, error))
            raise

    def _raise_if_refused(self, launch: Spec) -> None:
        for refused, error in self._refused:
            if refused == launch:
                raise error

    def _ask_baselines(self) -> None:
        """Ask what has not been asked yet: everything before the first check, nothing after it."""
        for launch, asks in self._wanted_baselines():
            if any(done == launch for done, _ in self._baselines):
                continue
            try:
                self._baselines.append((launch, self._ask(launch, asks)))
            except HarnessError as error:
                self._baselines.append((launch, error))

    def _wanted_baselines(self) -> list[tuple[LaunchSpec, list[Ask]]]:
        """Every baseline launch of this job with all that is asked of it."""
        wanted: list[tuple[LaunchSpec, list[Ask]]] = []
        if self._job.baseline is None:
            return wanted
        for spec in self._job.checks:
            check = self._checks.get(spec.name)
            if check is None or check.baseline_use is BaselineUse.NEVER:
                continue
            launch = self._baseline_launch(self._job.baseline, spec)
            asks = next((asks for known, asks in wanted if known == launch), None)
            if asks is None:
                wanted.append((launch, asks := []))
            asks += [ask for ask in _asks_of(check, spec) if ask not in asks]
        return wanted

    def _ask_more(self, spec: CheckSpec, ask: Ask) -> Baseline:
        """What fails here is the baseline, although the engine under test is being checked."""
        assert self._job.baseline is not None, "without a baseline a check gets no way to ask it"
        launch = self._baseline_launch(self._job.baseline, spec)
        try:
            self._raise_if_refused(launch)
            return self._ask(launch, [ask])
        except EngineError as error:
            raise baseline_error(error) from error

    def _ask(self, launch: LaunchSpec, asks: Sequence[Ask]) -> Baseline:
        """What this engine answered before, and the rest asked now."""
        cached = self._cache.find(launch, asks)
        known = {} if cached is None else cached.answers
        for answers in known.values():
            log_answers(answers, self._log)
        if cached is not None and len(known) == len(asks):
            return Baseline(info=cached.info, answers=known, origin=f"cached, asked on {cached.asked_on}")
        return self._ask_now(launch, [ask for ask in asks if ask not in known], known=known)

    def _ask_now(self, launch: LaunchSpec, asks: Sequence[Ask], *, known: dict[Ask, Answers]) -> Baseline:
        """Answer everything on one baseline engine, then stop it: its GPUs are the next engine's. An engine under
        test that holds GPUs makes room; whoever needs it next launches it again."""
        if self._job.needs.gpu is not None:
            self.close()
        begin = time.monotonic()
        engine = self._launch(launch, name="baseline")
        try:
            with engine.client.deadline("baseline", self._check_seconds()):
                answers = {ask: ask_engine(engine.client, ask, log=self._log) for ask in asks}
                info = engine.client.server_info()
        except DeadlineError:
            engine.dump_stacks()
            raise
        finally:
            engine.stop()
        self._cache.keep(launch, info, {ask: given for ask, given in answers.items() if complete(given)})
        origin = f"fresh, +{time.monotonic() - begin:.0f} s"
        return Baseline(info=info, answers={**known, **answers}, origin=origin)


def _launch_number(log: Path) -> tuple[int, str]:
    """Launches in their order, and of one launch its logs by name."""
    return int(log.name.partition("-")[0]), log.name


def _asks_of(check: Check, spec: CheckSpec) -> Sequence[Ask]:
    """What the check wants asked; where its data cannot be had, `run` says so again, to that check alone."""
    try:
        return check.baseline_asks(spec.params)
    except HarnessError:
        return ()


def error_result(error: HarnessError, *, about: str = "") -> CheckResult:
    """The `error` result of an exception, with the facts that its type carries."""
    return _error(
        f"{about}{_told(error)}",
        deadline=error.scope if isinstance(error, DeadlineError) else "",
        detail=error.detail if isinstance(error, EngineError) else "",
    )


def baseline_error(error: EngineError) -> EngineError:
    """The same error, told as the baseline's and not as one of the engine under test."""
    return EngineError(f"baseline: {_told(error)}", detail=error.detail)


def _told(error: HarnessError) -> str:
    died = isinstance(error, EngineDiedError) and not isinstance(error, NoAnswerError)
    return f"engine died: {error}" if died else str(error)


def _error(message: str, **figures: str) -> CheckResult:
    return CheckResult(
        outcome=CheckOutcome.ERROR,
        message=message,
        figures={key: value for key, value in figures.items() if value},
    )
