"""Every kind of bad suite file, through the real command: exit 2, file:line:column, no traceback, nothing started."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import ROOT, assert_usage_error, harness

GOOD = (ROOT / "suites" / "dcp" / "parity_dcp4.yaml").read_text()


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new, 1)


BOMB = "\n".join(
    ["a0: &a0 [x, x]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
)

CASES = {
    "unknown key": (changed("baseline:", "basline:"), ["baseline"]),
    "unknown check": (changed("- parity:", "- parrity:"), ["parity"]),
    "no unit": (changed("timeout: 5m", "timeout: 300"), ["timeout", "300"]),
    "wrong unit": (changed("timeout: 5m", "timeout: 5min"), ["timeout", "5min"]),
    "topology": (changed("parallel: {tp: 4, dcp: 4}", "parallel: {tp: 4, dcp: 3}"), ["4", "3"]),
    "deadlines": (changed("timeout: 5m", "timeout: 80s"), ["timeout"]),
    "duplicate key": (GOOD + "checks: []\n", ["checks"]),
    "tab": (changed("  cpu:", "\tcpu:"), ["tab"]),
    "empty": ("", ["empty"]),
    "alias bomb": (BOMB, ["alias"]),
    "python tag": (changed("summary: ", "summary: !!python/object/apply:os.system "), ["python"]),
    "yaml 1.1": (changed("estimate: 30s", "estimate: 1:30"), ["1:30"]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_bad_file_is_told_with_its_place(case: str, tmp_path: Path) -> None:
    text, words = CASES[case]
    catalogue = tmp_path / "suites"
    catalogue.mkdir()
    file = catalogue / "bad.yaml"
    file.write_text(text)
    done = harness("run", "bad", "--catalogue", str(catalogue), reports=tmp_path / "reports")
    assert_usage_error(done, f"{file}:", *words)
    first = done.err.splitlines()[0]
    assert re.match(rf"{re.escape(str(file))}:\d+:\d+: ", first), first  # as editors and scripts read it
    assert not (tmp_path / "reports").exists()


def test_a_file_of_50_mb_is_refused_by_its_size(tmp_path: Path) -> None:
    catalogue = tmp_path / "suites"
    catalogue.mkdir()
    with (catalogue / "big.yaml").open("wb") as file:
        file.truncate(50_000_000)
    done = harness("suites", "check", "--catalogue", str(catalogue))
    assert_usage_error(done, "big.yaml:1:1")


def test_all_mistakes_of_a_catalogue_come_at_once(tmp_path: Path) -> None:
    catalogue = tmp_path / "suites"
    catalogue.mkdir()
    (catalogue / "one.yaml").write_text(CASES["unknown key"][0])
    (catalogue / "two.yaml").write_text(CASES["wrong unit"][0])
    done = harness("suites", "check", "--catalogue", str(catalogue))
    assert_usage_error(done, "one.yaml:", "two.yaml:", "harness: 2 mistakes in 2 files")
