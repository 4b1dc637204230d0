"""Which files are read, which are told, and that neither bytes nor processes change what is found."""

from __future__ import annotations

import ast
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted import RULES, found_in, write_tree
from test_look_alikes import LOOK_ALIKES
from test_read_categories import ALL

import harness.ratchet.scanning as scan_module
from harness.errors import UsageError
from harness.ratchet import OnUnparsed, find_sites, judge, scan
from harness.ratchet.expressions import Expressions
from harness.ratchet.prefilter import Prefilter

READ = "def f(server_args): return server_args.dcp_size\n"


def files_of(path: Path) -> list[str]:
    return [site.file for site in scan(path, RULES).sites]


def test_tests_builds_environments_and_hidden_folders_are_excluded(tmp_path: Path) -> None:
    out = ["tests/a.py", "test/a.py", "x/test_a.py", "x/a_test.py", "conftest.py", "build/a.py", ".venv/a.py"]
    out += ["venv/a.py", "x/.hidden/a.py", "dist/a.py", "e.egg-info/a.py", "x/__pycache__/a.py", "notes.txt"]
    write_tree(tmp_path, dict.fromkeys([*out, "x/a.py", "x/testing.py", "x/builder/b.py"], READ))
    assert files_of(tmp_path) == ["x/a.py", "x/builder/b.py", "x/testing.py"]


def test_symbolic_links_are_not_followed(tmp_path: Path) -> None:
    write_tree(tmp_path, {"engine/a.py": READ, "elsewhere/b.py": READ})
    (tmp_path / "engine" / "loop").symlink_to(tmp_path / "engine")
    (tmp_path / "engine" / "more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "engine" / "c.py").symlink_to(tmp_path / "elsewhere" / "b.py")
    assert files_of(tmp_path / "engine") == ["a.py"]


@pytest.mark.parametrize("package", ["python/sglang", "sglang"])
def test_a_checkout_is_scanned_at_its_package(tmp_path: Path, package: str) -> None:
    write_tree(tmp_path, {f"{package}/srt/a.py": READ, "scripts/b.py": READ})
    found = scan(tmp_path, RULES)
    assert found.root == tmp_path / package
    assert [site.file for site in found.sites] == ["srt/a.py"]


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir()])
def test_nothing_to_scan_is_wrong_usage(tmp_path: Path, make: object) -> None:
    path = tmp_path / "none"
    make(path)  # type: ignore[operator]
    with pytest.raises(UsageError):
        scan(path, RULES)


@pytest.mark.parametrize(
    ("source", "line", "column", "why"),
    [
        (READ.encode() + b"def g(:\n", 2, 7, "invalid syntax"),
        (READ.encode() + b"\0", 1, 1, "null bytes"),
        (READ.encode() + b"# \xff\n", 1, 1, "utf-8"),
        (READ.encode() + b"type = = 1\n", 2, 8, "does not parse as Python 3."),
        (b"# coding: nonsense\n" + READ.encode(), 1, 1, "nonsense"),
        (READ.encode() + b"x = " + b"-" * 100_000 + b"1\n", 1, 1, "nested"),
    ],
)
def test_a_file_that_does_not_parse_is_told_and_fails_by_rule(
    tmp_path: Path, source: bytes, line: int, column: int, why: str
) -> None:
    (tmp_path / "bad.py").write_bytes(source)
    write_tree(tmp_path, {"good.py": READ})
    found = scan(tmp_path, RULES)
    (unparsed,) = found.unparsed
    assert (unparsed.file, unparsed.line, unparsed.column) == ("bad.py", line, column)
    assert why in unparsed.why
    assert [site.file for site in found.sites] == ["good.py"]
    assert judge(found, RULES, None).exit_code == 1
    assert judge(found, replace(RULES, unparsed=OnUnparsed.REPORT), None).exit_code == 0


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": READ})
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "gone.py").mkdir()
    assert files_of(tmp_path) == ["a.py"]


def test_deep_nesting_and_long_chains_are_read(tmp_path: Path) -> None:
    chain = " + ".join(["'a'"] * 2_000)
    write_tree(tmp_path, {"a.py": f"def f(server_args):\n    x = {chain}\n    return server_args.dcp_size\n"})
    assert files_of(tmp_path) == ["a.py"]


@pytest.mark.parametrize(
    ("newline", "encoding"), [("\n", "latin-1"), ("\r\n", "latin-1"), ("\r\n", "utf-8"), ("\r", "utf-8")]
)
def test_lines_and_columns_hold_for_every_newline_and_encoding(
    tmp_path: Path, newline: str, encoding: str
) -> None:
    text = newline.join([f"# -*- coding: {encoding} -*-", "s = 'é\x0c'; y = get_server_args().dcp_size", ""])
    (tmp_path / "a.py").write_bytes(text.encode(encoding))
    (site,) = scan(tmp_path, RULES).sites
    assert (site.line, site.column) == (2, 15)


def test_a_file_that_is_no_python_is_wrong_usage(tmp_path: Path) -> None:
    write_tree(tmp_path, {"notes.txt": READ})
    with pytest.raises(UsageError, match="Python file"):
        scan(tmp_path / "notes.txt", RULES)


def test_a_folder_that_cannot_be_read_is_not_left_out_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(tmp_path, {"a.py": READ, "locked/b.py": READ})
    listed = os.scandir

    def refusing(path):  # type: ignore[no-untyped-def]
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(UsageError, match=r"locked cannot be read: Permission denied"):
        scan(tmp_path, RULES)


def test_nested_loops_do_not_double_the_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    depth = 15
    loops = "".join(f"{'    ' * n}for i{n} in x:\n" for n in range(1, depth + 1))
    source = f"def f(server_args, x):\n{loops}{'    ' * (depth + 1)}server_args.dcp_size\n"
    visits = []
    read = Expressions.read
    monkeypatch.setattr(Expressions, "read", lambda *given: visits.append(1) or read(*given))
    assert len(found_in(source)) == 1
    assert len(visits) <= 2 * (depth + 1)


@pytest.mark.parametrize("pattern", ["[*", "a(b", "?pWorker", "[ST]pWorker", "T*r", "*"])
def test_any_glob_of_worker_classes_is_one_for_the_bytes_too(tmp_path: Path, pattern: str) -> None:
    source = "class TpWorker:\n    def f(self): self.n = get_parallel().attn_dcp_size\n"
    rules = replace(RULES, worker_classes=(pattern,))
    found = scan(write_tree(tmp_path, {"a.py": source}), rules).sites
    assert len(found) == len(found_in(source, rules))


def test_processes_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"m{number:03}/a.py": READ * (number % 3) or "pass" for number in range(260)}
    write_tree(tmp_path, files)
    told: list[tuple[int, int]] = []
    parallel = scan(tmp_path, RULES, progress=lambda done, total: told.append((done, total)))
    monkeypatch.setattr(scan_module, "WORKERS", 1)
    assert scan(tmp_path, RULES) == parallel
    assert told == [(number, 260) for number in range(1, 261)]


@pytest.mark.parametrize("after", [0, 7])
def test_without_processes_the_scan_goes_on_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    write_tree(tmp_path, {f"m{number:03}.py": READ for number in range(260)})

    def failing(look, files, cores):  # type: ignore[no-untyped-def]
        yield from map(look, files[:after])
        raise OSError("no semaphores here")

    monkeypatch.setattr(scan_module, "_in_pool", failing)
    monkeypatch.setattr(scan_module.os, "sched_getaffinity", lambda pid: {0, 1})
    assert len(scan(tmp_path, RULES).sites) == 260


@pytest.mark.parametrize("name", [*ALL, *LOOK_ALIKES])
def test_the_bytes_of_a_file_hide_no_read(name: str) -> None:
    source = (ALL | LOOK_ALIKES)[name].replace("⟦", "").replace("⟧", "")
    for mark in ("direct", "aliased", "defensive", "copied", "early"):
        for axis in ("dcp", "tp", "pp", "attn_cp", "moe_dp"):
            source = source.replace(f"{mark} {axis}|", "")
    if found_in(source):
        assert Prefilter.of(RULES).may_hold(source.encode())


@given(st.text(alphabet="ab(){}[]:=.,'\"\n \\#é\0", max_size=40))
def test_no_text_makes_the_walk_fail(text: str) -> None:
    source = f"def f(server_args): return server_args.dcp_size\n{text}"
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    assert find_sites(tree, file="a.py", text=source.replace("\r", "\n"), rules=RULES)
