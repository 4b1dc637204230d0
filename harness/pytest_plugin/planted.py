"""A run under the name of a fault has that fault in it, or is red.

Engines plant faults themselves; of plain tests a fixture does (`report_planted`), and what a suite declares no
fixture need know of. Each report of such a test carries, across processes, which faults were to be planted and which
have been; after the last one, a fault that nobody planted is a failure of its own, in the terminal and in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from typing import Any

import pytest

PLANTED_PROPERTY = "harness_planted"
PLANTED = pytest.StashKey[set[str]]()


@pytest.fixture(scope="session")
def report_planted(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """`report_planted(ID)`: to be called by the fixture that has just planted this fault in the process."""
    return request.config.stash.setdefault(PLANTED, set()).add


class PlantedFaults:
    """`to_plant` are the faults asked for that an item's own fixtures must plant; none of a check of engines."""

    def __init__(self, config: pytest.Config, to_plant: Callable[[pytest.Item], Collection[str]]) -> None:
        self._config = config
        self._to_plant = to_plant
        # Of all processes, in the one that hears of all reports.
        self._wanted: dict[str, str] = {}
        self._planted: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if wanted := sorted(self._to_plant(item)):
            planted: set[str] = self._config.stash.get(PLANTED, set())
            report.user_properties.append((PLANTED_PROPERTY, {"wanted": wanted, "planted": sorted(planted)}))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for key, value in report.user_properties:
            if key == PLANTED_PROPERTY and isinstance(value, dict):
                self._wanted |= {fault: report.nodeid.partition("::")[0] for fault in value["wanted"]}
                self._planted |= set(value["planted"])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, Any, Any]:
        done = yield
        # A worker of xdist hears of its own tests only.
        if not hasattr(self._config, "workerinput"):
            for fault, file in self._wanted.items():
                if fault not in self._planted:
                    self._config.hook.pytest_runtest_logreport(report=_never_planted(fault, file))
        return done


def _never_planted(fault: str, file: str) -> pytest.TestReport:
    name = f"fault {fault}"
    return pytest.TestReport(
        nodeid=f"{file}::{name}",
        location=(file, None, name),
        keywords={},
        outcome="failed",
        longrepr=f"no test that ran has planted {fault}: what passed has passed without it",
        when="call",
    )
