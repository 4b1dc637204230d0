"""A rules or baseline file with a mistake is refused at the place of the mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
from planted import write_tree
from two_releases import BEFORE, RULES

from harness.errors import SourceError, SourceErrors, UsageError
from harness.ratchet import Baseline, load_baseline, load_rules, save_baseline, scan

CODE = {"a.py": "def f(server_args):\n    return server_args.dcp_size  # meant\n"}


def rules_file(folder: Path, text: str) -> Path:
    return write_tree(folder, {"rules.yaml": text}) / "rules.yaml"


def exempting(folder: Path, entry: str) -> Path:
    return rules_file(folder, RULES + f"exempt:\n  - {entry}\n")


@pytest.mark.parametrize(
    ("old", "new", "line", "column", "words"),
    [
        ("exclude:", "exlude:", 2, 1, "did you mean 'exclude'"),
        ("names: [server_args]", "name: [server_args]", 3, 15, "unknown key 'name'"),
        ("exclude: [tests]", "exclude: tests", 2, 10, "allowed: a list of names"),
        ("exclude: [tests]", "exclude: [3]", 2, 10, "allowed: a list of names"),
        ("exclude: [tests]", "unparsed: maybe", 2, 11, "allowed: fail, report"),
        ("    fields: [dcp_size]\n", "", 10, 5, "axes.dcp.fields"),
        ("    instead: get_parallel().attn_dcp_size\n", "", 10, 5, "axes.dcp.instead"),
        ("    instead: get", "    insted: get", 12, 5, "did you mean 'instead'"),
        ("fields: [tp_size]", "fields: [dcp_size]", 14, 7, "'dcp_size' is a name of dcp too"),
        ("live: {getters", "live: {getter", 4, 8, "did you mean 'getters'"),
    ],
)
def test_a_mistake_is_told_at_its_place(
    tmp_path: Path, old: str, new: str, line: int, column: int, words: str
) -> None:
    assert old in RULES
    with pytest.raises((SourceError, SourceErrors)) as caught:
        load_rules(rules_file(tmp_path, RULES.replace(old, new, 1)))
    error = caught.value if isinstance(caught.value, SourceError) else caught.value.errors[0]
    assert (error.mark.line, error.mark.column) == (line, column)
    assert words in str(error)


def test_rules_without_axes_or_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceErrors, match=r"(?s)axes: missing.*server_args\.names: missing"):
        load_rules(rules_file(tmp_path, "exclude: [tests]\n"))


@pytest.mark.parametrize(
    ("entry", "counted"),
    [
        ("{places: [a.py], reason: meant}", 0),
        ("{places: ['*.py::f'], reason: meant}", 0),
        ("{places: ['a.py::*::# meant'], axes: [dcp], reason: meant}", 0),
        ("{places: [gone.py, 'a.py::f'], reason: meant}", 0),
    ],
)
def test_an_exemption_takes_what_it_speaks_of(tmp_path: Path, entry: str, counted: int) -> None:
    rules = load_rules(exempting(tmp_path, entry))
    found = scan(write_tree(tmp_path / "code", CODE), rules)
    assert len(found.sites) == counted
    assert [each.reason for each in found.exempted] == ["meant"]


@pytest.mark.parametrize(
    "entry",
    [
        "{places: [b.py], reason: r}",
        "{places: ['a.py::g'], reason: r}",
        "{places: ['a.py::f::another line'], reason: r}",
        "{places: [a.py], axes: [tp], reason: r}",
        "{places: [b.py, c.py], reason: r}",
    ],
)
def test_an_exemption_that_matches_nothing_is_an_error_at_its_place(tmp_path: Path, entry: str) -> None:
    path = exempting(tmp_path, entry)
    with pytest.raises(SourceError) as caught:
        scan(write_tree(tmp_path / "code", CODE), load_rules(path))
    assert str(caught.value.mark) == f"{path}:{RULES.count(chr(10)) + 2}:5"
    assert caught.value.exit_code == 2


def test_a_place_that_holds_nothing_beside_one_that_does_is_told(tmp_path: Path) -> None:
    path = exempting(tmp_path, "{places: ['a.py::f', 'a.py::g', b.py], reason: r}")
    found = scan(write_tree(tmp_path / "code", CODE), load_rules(path))
    assert [str(place) for place in found.idle] == ["a.py::g", "b.py"]
    assert {place.mark.line for place in found.idle} == {RULES.count("\n") + 2}


def test_one_file_may_leave_exemptions_of_others_idle(tmp_path: Path) -> None:
    rules = load_rules(exempting(tmp_path, "{places: [b.py], reason: r}"))
    write_tree(tmp_path / "code", CODE)
    assert len(scan(tmp_path / "code" / "a.py", rules).sites) == 1


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("{places: [a.py]}", r"exempt\[0\]\.reason: missing"),
        ("{places: [a.py], reason: ''}", "allowed: text"),
        ("{reason: r}", r"exempt\[0\]\.places: missing"),
        ("{places: [a.py], reason: r, axes: [dpc]}", "did you mean 'dcp'"),
        ("{place: [a.py], places: [a.py], reason: r}", "did you mean 'places'"),
        ("{places: [a.py, a.py], reason: r}", "written twice"),
        ("{places: ['a.py::'], reason: r}", "FILE::FUNCTION"),
        ("{places: ['::f'], reason: r}", "FILE::FUNCTION"),
        ("a.py", "allowed: a mapping"),
    ],
)
def test_an_exemption_says_what_and_why(tmp_path: Path, entry: str, words: str) -> None:
    with pytest.raises(SourceError, match=words):
        load_rules(exempting(tmp_path, entry))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("total: 3", "total: 2", "2, but 3 sites are listed"),
        ("schema: 1", "schema: 2", "allowed: 1"),
        ("schema: 1", "schema: true", "allowed: 1"),
        ("total: 3", "total: -3", "-3, but 3 sites are listed"),
        ("total: 1", "total: true", "but 1 sites are listed"),
        ("    direct:", "    dirct:", "did you mean 'direct'"),
        ("      files:", "      file:", "did you mean 'files'"),
    ],
)
def test_a_baseline_cannot_say_two_things(tmp_path: Path, old: str, new: str, words: str) -> None:
    rules = load_rules(rules_file(tmp_path, RULES))
    path = tmp_path / "baseline.yaml"
    save_baseline(path, Baseline.of(scan(write_tree(tmp_path / "code", BEFORE), rules).sites))
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(SourceError, match=words) as caught:
        load_baseline(path)
    assert text.split("\n")[caught.value.mark.line - 1].strip().startswith(old.strip())


def test_no_baseline_is_told_with_the_way_to_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--update"):
        load_baseline(tmp_path / "none.yaml")
