"""Plain tests under `--harness-fault`: a fault that no test has planted is red, wherever and however they ran."""

from __future__ import annotations

from pathlib import Path

import pytest
from suite_runs import Pytest, run_pytest

from harness.execution.events import read_event
from harness.verdict import CheckOutcome

SUITE = """
summary: plain tests
profiles: {cpu: {needs: {cpu: 1}, estimate: 1s, timeout: 1m}}
tests: ["test_*.py"]
faults: [stride, head-order]
"""
PLANTS = """
import pytest

@pytest.fixture(scope="session", autouse=True)
def planted(request, report_planted):
    for fault in request.config.getoption("--harness-fault"):
        report_planted(fault)

def test_planting(): pass
"""
HEALTHY = "import pytest\n@pytest.mark.parametrize('n', range(4))\ndef test_healthy(n): pass\n"


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    folder = tmp_path / "suites"
    folder.mkdir()
    (folder / "plain.yaml").write_text(SUITE)
    (folder / "test_healthy.py").write_text(HEALTHY)
    return folder / "plain.yaml"


def run(suite: Path, *options: str) -> Pytest:
    faults = [part for fault in options for part in ("--harness-fault", fault)]
    return run_pytest(suite, *faults, cwd=suite.parents[1])


@pytest.mark.parametrize("workers", [[], ["-n", "2"]])
@pytest.mark.parametrize("file", ["plain.yaml", "test_healthy.py"])
def test_a_fault_that_no_test_plants_is_red(suite: Path, file: str, workers: list[str]) -> None:
    fault = ("--harness-fault", "stride")
    done = run_pytest(suite.parent / file, *fault, *workers, cwd=suite.parents[1])
    assert done.code == 1, done.out
    assert "1 failed, 4 passed" in done.out
    assert "no test that ran has planted stride: what passed has passed without it" in done.out
    told = [
        check
        for line in (suite.parents[1] / "events.jsonl").read_bytes().splitlines()
        for check in read_event(line)
    ]
    (failed,) = [check for check in told if check.outcome is CheckOutcome.FAILED]
    assert failed.name == "fault stride"
    assert failed.message.startswith("no test that ran has planted stride")


@pytest.mark.parametrize("workers", [[], ["-n", "2"]])
def test_one_fixture_that_plants_is_enough(suite: Path, workers: list[str]) -> None:
    (suite.parent / "test_planting.py").write_text(PLANTS)
    done = run_pytest(suite, "--harness-fault", "stride", *workers, cwd=suite.parents[1])
    assert done.code == 0, done.out
    assert "5 passed" in done.out


def test_each_fault_counts_for_itself(suite: Path) -> None:
    (suite.parent / "test_planting.py").write_text(
        PLANTS.replace("        report_planted(fault)", "        if fault == 'stride': report_planted(fault)")
    )
    done = run(suite, "stride", "head-order")
    assert done.code == 1, done.out
    assert "planted head-order" in done.out
    assert "planted stride" not in done.out


def test_one_that_the_suite_does_not_declare_is_refused(suite: Path) -> None:
    done = run(suite, "stride", "len-ceil")
    assert done.code == 2, done.out
    assert "plain has no engine, and its tests plant no len-ceil; allowed: stride, head-order" in done.out


def test_without_a_fault_nothing_has_to_be_planted(suite: Path) -> None:
    assert run(suite).code == 0
