"""`harness ratchet scan` as a person or a workflow runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import assert_usage_error, harness

RULES = """\
server_args: {names: [server_args], types: [ServerArgs]}
axes:
  dcp: {fields: [dcp_size], instead: get_parallel().attn_dcp_size}
"""
ONE = "def f(server_args):\n    return server_args.dcp_size\n"
TWO = ONE + "def g(server_args):\n    return server_args.dcp_size\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "a.py").write_text(ONE)
    (tmp_path / "rules.yaml").write_text(RULES)
    return tmp_path


def scan(folder: Path, *options: str):  # type: ignore[no-untyped-def]
    return harness("ratchet", "scan", "engine", "--rules", "rules.yaml", *options, cwd=folder)


def test_sites_and_totals_are_printed(folder: Path) -> None:
    done = scan(folder)
    assert done.code == 0, done.told
    assert done.out.splitlines() == [
        "engine/a.py:2:12 dcp direct server_args.dcp_size -> should read get_parallel().attn_dcp_size",
        "dcp: direct 1 / alias 0 / defensive 0 / copied 0 / early 0",
        "1 files, 1 parsed; 0 reads exempt",
    ]
    assert done.err == ""


def test_the_ratchet_turns_one_way(folder: Path) -> None:
    baseline = ("--baseline", "baseline.yaml")
    assert_usage_error(scan(folder, *baseline), "no baseline", "--update")
    assert scan(folder, *baseline, "--update").code == 0
    assert scan(folder, *baseline).code == 0

    (folder / "engine" / "a.py").write_text(TWO)
    more = scan(folder, *baseline)
    assert more.code == 1
    assert "more dcp direct 1 -> 2" in more.out
    assert "new  engine/a.py:4:12" in more.out
    before = (folder / "baseline.yaml").read_text()
    assert_usage_error(scan(folder, *baseline, "--update"), "dcp direct 1 -> 2", "--allow-increase")
    assert (folder / "baseline.yaml").read_text() == before
    assert scan(folder, *baseline, "--update", "--allow-increase", "a new role needs it").code == 0
    assert "a new role needs it" in (folder / "baseline.yaml").read_text()

    (folder / "engine" / "a.py").write_text(ONE)
    fewer = scan(folder, *baseline)
    assert fewer.code == 0
    assert "run --update" in fewer.out
    assert scan(folder, *baseline, "--update").code == 0
    (folder / "engine" / "a.py").write_text(TWO)
    assert scan(folder, *baseline).code == 1


def test_json_and_annotations(folder: Path) -> None:
    document = json.loads(scan(folder, "--json").out)
    assert document["schema"] == 1
    assert document["totals"]["dcp"]["direct"] == 1
    assert json.loads(scan(folder, "--format", "json").out) == document
    annotated = scan(folder, "--format", "github").out.splitlines()
    assert annotated[0].startswith("::warning file=engine/a.py,line=2,col=12,title=")


def test_a_file_that_does_not_parse_fails(folder: Path) -> None:
    (folder / "engine" / "b.py").write_text("server_args.dcp_size = = 1\n")
    done = scan(folder)
    assert done.code == 1
    assert "engine/b.py:1:24 unparsed does not parse as Python 3." in done.out
    assert scan(folder, "--format", "github").out.startswith("::error file=engine/b.py,line=1,col=24,")


def test_an_idle_exemption_is_told_at_its_place(folder: Path) -> None:
    (folder / "rules.yaml").write_text(
        RULES + "exempt:\n  - {places: [gone.py], reason: it was there once}\n"
    )
    done = scan(folder)
    assert_usage_error(done, "rules.yaml:5:5: exempt: exempts nothing")
    assert done.out == ""


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--update",), "--baseline"),
        (("--allow-increase", "x"), "--update"),
        (("--format", "xml"), "xml"),
        (("--rules", "none.yaml"), "none.yaml"),
    ],
)
def test_wrong_usage(folder: Path, options: tuple[str, ...], word: str) -> None:
    assert_usage_error(scan(folder, *options), word)


def test_one_file_has_no_baseline(folder: Path) -> None:
    done = harness(
        "ratchet", "scan", "engine/a.py", "--rules", "rules.yaml", "--baseline", "b.yaml", cwd=folder
    )
    assert_usage_error(done, "whole tree")


def test_no_such_tree(folder: Path) -> None:
    assert_usage_error(harness("ratchet", "scan", "nowhere", cwd=folder), "nowhere")


def test_the_help_has_an_example() -> None:
    for words in (("ratchet", "--help"), ("ratchet", "scan", "--help")):
        assert "Example: harness ratchet scan" in harness(*words).out
