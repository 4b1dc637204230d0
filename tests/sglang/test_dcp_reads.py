"""The table of `sglang/dcp_reads` on the real releases, and each read that upstream moved, moved back alone.

A process of a release takes some ten seconds, so all rows are driven in one, and reverts share one.
With HARNESS_EVERY_REVERT=1, as at night, each revert has a process of its own.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from reverts import LOOK_ALIKES, REVERTS, VERSION, Revert
from sglang_process import CHECKOUT, run_python

from harness.environments import EngineSource, Environment, read_source
from harness.reads.judge import check_name
from harness.reads.registry import load_consumers
from harness.reads.table import Table, load_table

RELEASES = ("0.5.17", "0.5.18", "0.5.23")
SCRIPT = Path(__file__).with_name("observe_reads.py")
Rows = dict[str, dict[str, Any]]
Observe = Callable[..., Rows]


@pytest.fixture(scope="session")
def observe(sglang_environment: Callable[[str], Environment]) -> Observe:
    """All rows of a release, driven once; of a copy of it, where a source is given."""

    @cache
    def of(version: str, source: EngineSource | None = None) -> Rows:
        done = run_python(sglang_environment(version), str(SCRIPT), source=source)
        told = [line for line in done.stdout.splitlines() if line.startswith("ROWS ")]
        assert told, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        rows: Rows = json.loads(told[0].removeprefix("ROWS "))
        return rows

    return of


@pytest.fixture(scope="session")
def table() -> Table:
    return load_table(CHECKOUT / "suites" / "sglang" / "_dcp_reads.yaml", load_consumers())


@pytest.mark.parametrize("version", RELEASES)
def test_the_table_holds(version: str, observe: Observe, table: Table) -> None:
    expected = {
        check_name(name, role): cells[version].source
        for name, row in table.rows.items()
        for role, cells in row.expected.items()
    }
    assert {row: seen.get("source", seen) for row, seen in observe(version).items()} == expected


def test_between_two_releases_exactly_the_rows_of_the_two_changes_moved(
    observe: Observe, table: Table
) -> None:
    before, after = observe("0.5.17"), observe("0.5.18")
    moved = {row for row in before if before[row]["source"] != after[row]["source"]}
    assert moved == {
        check_name(name, role)
        for name, row in table.rows.items()
        for role in row.expected
        if row.changes[role]
    }
    # Each is told by what it used; a row that died has used nothing.
    assert all(before[row]["used"] != after[row]["used"] for row in moved)


def test_every_row_tells_where_it_was_driven(observe: Observe) -> None:
    for row, seen in observe("0.5.18").items():
        file, line = seen["where"].split(":")
        assert file.endswith(".py"), row
        assert int(line) > 0, row


def _reverts() -> dict[str, list[Revert]]:
    """What is made at once, by name: all that can be, and one by itself; at night each by itself."""
    together = [revert for revert in REVERTS if not revert.alone]
    alone = {revert.name: [revert] for revert in REVERTS}
    look_alikes = {"look-alikes": list(LOOK_ALIKES)}
    if os.environ.get("HARNESS_EVERY_REVERT"):
        return alone | look_alikes
    return {"all together": together, "kv pool": alone["kv pool"], **look_alikes}


@pytest.mark.parametrize("reverts", _reverts().values(), ids=_reverts())
def test_reverting_a_read_flips_exactly_its_rows(
    reverts: Sequence[Revert],
    observe: Observe,
    sglang_environment: Callable[[str], Environment],
    tmp_path: Path,
) -> None:
    plain = observe(VERSION)
    package = sglang_environment(VERSION).package / "sglang"
    shutil.copytree(package, tmp_path / "sglang", copy_function=_link)
    for revert in reverts:
        _revert(revert, tmp_path / "sglang")
    reverted = observe(VERSION, read_source(tmp_path))
    flipped = {
        row: seen.get("source", seen)
        for row, seen in reverted.items()
        if seen.get("source") != plain[row]["source"]
    }
    assert flipped == {row: source for revert in reverts for row, source in revert.flips.items()}
    assert all(reverted[row]["used"] != plain[row]["used"] for row in flipped)


def _link(source: str, target: str) -> None:
    """A copy that costs nothing where the file system allows it; what is edited is written anew."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _revert(revert: Revert, package: Path) -> None:
    file = package / revert.file
    text = file.read_text()
    assert text.count(revert.old) == 1, f"{revert.name}: {text.count(revert.old)} places in {revert.file}"
    file.unlink()
    file.write_text(text.replace(revert.old, revert.new))
