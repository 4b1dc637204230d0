"""Suite files as pytest items: one item per check, or the plain test files that a suite names.

The executor starts one pytest process per job with `--harness-attempt-dir`; a person types
`pytest suites/dcp/parity_dcp4.yaml` and runs the very same checks. Each check leaves its result in the
report's `user_properties`, where pytest-reportlog writes it line by line, and rings the executor's doorbell.

pytest loads this module in every run of an environment that has harness installed: it imports the rest of
harness only where it is needed, so that other people's runs pay nothing.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.pytest_plugin.options import add_options, pairs_of, path_of

if TYPE_CHECKING:
    from harness.checks import CheckResult
    from harness.checks.session import JobSession
    from harness.refengine.comm import WorldMaker
    from harness.suites import CheckSpec, Job
    from harness.topology.marker import TopologyPoint

CHECK_PROPERTY = "harness_check"
DOORBELL = "HARNESS_DOORBELL_FD"
SUITE_SUFFIXES = {".yaml", ".yml"}
CATALOGUE_FOLDER = "suites"


class CheckError(Exception):
    """A check that did not pass; carries what the terminal shows."""

    def __init__(self, result: CheckResult) -> None:
        self.result = result
        super().__init__(f"{result.outcome.value}: {result.message}")


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.import_plugin("harness.topology.marker")
    config.pluginmanager.import_plugin("harness.topology.targets.plugin")
    config.pluginmanager.import_plugin("harness.pytest_plugin.planted")
    if config.getoption("--harness-fault"):
        from harness.pytest_plugin.planted import PlantedFaults

        config.pluginmanager.register(PlantedFaults(config, _to_plant), "harness-planted-faults")
    if config.getoption("--harness-attempt-dir"):
        # A copy of stderr, made before pytest captures it: the executor asks for stacks when a deadline passed.
        faulthandler.register(signal.SIGUSR1, file=os.dup(2), all_threads=True)
    # An xdist worker inherits the variable, not the descriptor; its reports are rung for by its controller.
    if (descriptor := os.environ.get(DOORBELL)) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Doorbell(int(descriptor)), "harness-doorbell")


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest) -> str:
    """What the tests look at: `reference`, or the name of the package that this environment holds."""
    given: str | None = request.config.getoption("--harness-target")
    return given or "reference"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of an engine that its suite leaves out: skipped by name, so that the results show them."""
    excused = dict(config.getoption("--harness-excuse"))
    for item in items:
        if (reason := excused.get(item.nodeid.partition("::")[2])) is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def dcp_world(request: pytest.FixtureRequest) -> WorldMaker:
    """All ranks of a topology as threads: of the test's mark, or of sizes, `dcp_world(tp=4, dcp=2)`."""
    from harness.refengine.comm import WorldMaker

    point: TopologyPoint | None = getattr(request, "param", None)
    return WorldMaker(None if point is None else point.config)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> SuiteCollector | None:
    if file_path.suffix not in SUITE_SUFFIXES or file_path.name.startswith("_"):
        return None
    root = catalogue_of(file_path, given=parent.config.getoption("--harness-catalogue"))
    if root is None and parent.session.isinitpath(file_path):
        # Somebody asks for this very file: better an error that says what is wrong with it than no tests.
        root = file_path.parent
    return None if root is None else SuiteCollector.from_parent(parent, path=file_path, catalogue=root)


def catalogue_of(path: Path, *, given: str | None) -> Path | None:
    """What the suite's name is relative to: the folder given, or the nearest above that is named `suites`."""
    if given is not None and path.is_relative_to(Path(given).absolute()):
        return Path(given).absolute()
    return next((folder for folder in path.parents if folder.name == CATALOGUE_FOLDER), None)


class SuiteCollector(pytest.File):
    """One suite file at one profile; a matrix gives one `JobCollector` per point."""

    def __init__(self, *, catalogue: Path, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._catalogue = catalogue

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        from harness.errors import HarnessError
        from harness.suites import ProfileName, expand, load_suite, parse_target

        profile = ProfileName(self.config.getoption("--harness-profile"))
        given = self.config.getoption("--harness-target")
        try:
            target = None if given is None else parse_target(given)[0]
            jobs = expand(load_suite(self.path, root=self._catalogue), profile, target=target)
        except HarnessError as error:
            raise self.CollectError(str(error)) from error
        for job in jobs:
            if refused := _why_not_alone(job, self.config):
                raise self.CollectError(refused)
        wanted = pairs_of(self.config.getoption("--harness-matrix"), option="--harness-matrix")
        for job in jobs:
            if all(str(job.matrix.get(name)) == value for name, value in wanted.items()):
                yield JobCollector.from_parent(self, name=job.id, job=job)


def _why_not_alone(job: Job, config: pytest.Config) -> str | None:
    """Why pytest on the suite file cannot run the job, or None."""
    from harness.suites import extras_needed, installed_extras

    if job.source_tests is not None:
        return f"{job.suite} runs the engine's own test files: harness run {job.suite} --source PATH"
    if job.target not in job.targets:
        return f"{job.suite} has no target {job.target} (it has {' and '.join(job.targets)})"
    args = pairs_of(config.getoption("--harness-engine-arg"), option="--harness-engine-arg")
    installed = installed_extras()
    if missing := [extra.missing for extra in extras_needed(job, args) if extra not in installed]:
        return f"{job.suite} {' and '.join(missing)}"
    if idle := [] if job.engines else sorted({*config.getoption("--harness-fault")} - {*job.faults}):
        allowed = ", ".join(job.faults) or "none"
        return (
            f"{job.suite} has no engine, and its tests plant no {' and no '.join(idle)}; allowed: {allowed}"
        )
    return None


def _to_plant(item: pytest.Item) -> set[str]:
    """Those of the faults asked for that tests must plant: what their suite declares, without a suite all."""
    asked: set[str] = {*item.config.getoption("--harness-fault")}
    job = item.getparent(JobCollector)
    if isinstance(item, CheckItem):
        return set()
    return asked if job is None else asked & {*job.job.faults}


class JobCollector(pytest.Collector):
    """One job: its checks share one session, hence one engine at a time."""

    def __init__(self, *, job: Job, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.job = job
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._session: JobSession | None = None

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        for path in self.job.tests:
            yield SuiteModule.from_parent(self, path=path)
        for spec in self.job.checks:
            yield CheckItem.from_parent(self, name=spec.name, spec=spec)

    def session_for_checks(self) -> JobSession:
        """The job's `JobSession`, made at first use: collecting must start nothing."""
        if self._session is None:
            from harness.checks import CHECKS
            from harness.checks.reference_file import baselines_path
            from harness.checks.session import JobSession, SessionOptions

            option = self.config.getoption
            self._session = JobSession(
                self.job,
                checks=CHECKS,
                options=SessionOptions(
                    logs=self._log_folder(),
                    faults=tuple(option("--harness-fault")),
                    engine_args=pairs_of(option("--harness-engine-arg"), option="--harness-engine-arg"),
                    references=baselines_path(catalogue=self.job.catalogue),
                    cache=path_of(option("--harness-baseline-cache")),
                    engine_sha=option("--harness-engine-sha"),
                    gated_checks=option("--harness-gated-checks"),
                    keep_questions=bool(option("--harness-attempt-dir")),
                ),
            )
        return self._session

    def teardown(self) -> None:
        if self._session is not None:
            self._session.close()
        if self._scratch is not None:
            self._scratch.cleanup()

    def _log_folder(self) -> Path:
        given = self.config.getoption("--harness-attempt-dir")
        if given:
            return Path(given)
        self._scratch = tempfile.TemporaryDirectory(prefix="harness-")
        return Path(self._scratch.name)


class SuiteModule(pytest.Module):
    """A test file that a suite names. Without a test it is an error, also when other files have some."""

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        found = list(super().collect())
        if not found:
            raise self.CollectError(f"{self.path} is named by a suite and holds no test")
        yield from found


class CheckItem(pytest.Item):
    """One check of one job."""

    parent: JobCollector

    def __init__(self, *, spec: CheckSpec, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._spec = spec

    def runtest(self) -> None:
        begin = time.monotonic()
        session = self.parent.session_for_checks()
        result: CheckResult = session.run(self._spec)
        self.user_properties.append((CHECK_PROPERTY, self._record(result, time.monotonic() - begin)))
        if result.outcome.value in self._failing_outcomes():
            self._attach_logs(session.logs())
            raise CheckError(result)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, CheckError):
            return f"{self._spec.name} {excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"{self.parent.job.id}::{self.name}"

    def _failing_outcomes(self) -> set[str]:
        """Under the executor an open outcome is judged there; alone, nothing but `passed` may look green."""
        red = {"failed", "error"}
        return (
            red
            if self.config.getoption("--harness-attempt-dir")
            else red | {"underpowered", "unproven", "skipped"}
        )

    def _record(self, result: CheckResult, seconds: float) -> dict[str, Any]:
        return {
            "name": self._spec.name,
            "outcome": result.outcome.value,
            "message": result.message,
            "figures": result.figures,
            "seconds": round(seconds, 3),
        }

    def _attach_logs(self, logs: list[Path]) -> None:
        from harness.engines import log_tail

        for log in logs:
            if tail := log_tail(log):
                self.add_report_section("call", log.name, tail)


class Doorbell:
    """Rings after reportlog has written a line, so that the executor finds it when it wakes."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        os.write(self._descriptor, b".")
