"""The shipped DCP suites themselves: red under every fault at the check that should see it, green without."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from runs import ROOT, World

SUITES = ["dcp/parity_dcp4", "dcp/parity_dcp8"]
# Which checks see a fault: numbers move under all of them, physical rows under one.
SEEN_BY = {
    "lse-base": {"parity", "batch"},
    "len-ceil": {"parity", "batch"},
    "owner-div": {"parity", "batch", "rows"},
}


def run_shipped(world: World, suite: str, *args: str) -> tuple[int, dict[str, dict[str, object]]]:
    (world.folder / "pools.yaml").write_text("pools:\n  cpu: {executor: local, slots: 2}\n")
    out = world.folder / "out.json"
    catalogue = str(ROOT / "suites")
    code, told, err = world.run(
        "run", suite, "--profile", "cpu", "--catalogue", catalogue, "--json", str(out), *args
    )
    assert code in (0, 1), told + err
    (job,) = json.loads(out.read_text())["jobs"]
    return code, {check["name"]: check for check in job["checks"]}


@pytest.mark.parametrize("fault", SEEN_BY)
@pytest.mark.parametrize("suite", SUITES)
def test_a_fault_is_seen_where_it_should_be(world: World, suite: str, fault: str) -> None:
    code, checks = run_shipped(world, suite, "--fault", fault)
    assert code == 1
    assert {name for name, check in checks.items() if check["outcome"] == "failed"} == SEEN_BY[fault]
    worst = checks["parity"]["figures"]["worst"]  # type: ignore[index]
    assert worst["gap"] > 100 * checks["parity"]["figures"]["bound"]  # type: ignore[index]
    assert "position" in str(checks["parity"]["message"])


@pytest.mark.parametrize("suite", SUITES)
def test_gloo_gives_the_same_verdict(world: World, suite: str) -> None:
    code, checks = run_shipped(world, suite, "--engine-arg", "comm=gloo")
    assert code == 0
    assert len(checks) == 8


def test_bare_pytest_runs_the_same_checks(tmp_path: Path) -> None:
    plugins = ["-p", "no:harness", "-p", "harness.pytest_plugin", "-p", "no:cacheprovider"]
    file = ROOT / "suites" / "dcp" / "parity_dcp4.yaml"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "-v", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    for check in ("active", "parity", "batch", "capacity", "caps", "rows", "drained"):
        assert f"dcp/parity_dcp4@cpu::{check} PASSED" in done.stdout
