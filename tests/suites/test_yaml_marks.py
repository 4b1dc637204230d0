"""Reading YAML with positions: what is refused and where, and what plain scalars mean."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from suite_helpers import place, write

from harness.errors import Mark, SourceError
from harness.suites import MarkedDict, MarkedList, load_yaml, mark_at
from harness.suites.yaml_text import MAX_BYTES


def refused(folder: Path, data: str | bytes) -> SourceError:
    path = folder / "x.yaml"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    with pytest.raises(SourceError) as caught:
        load_yaml(path)
    return caught.value


def test_positions_of_keys_values_and_items(tmp_path: Path) -> None:
    path = write(tmp_path, "a:\n  b: [1, {c: 2}]\n'd': x\n")
    tree = load_yaml(path)
    assert isinstance(tree, MarkedDict)
    assert tree == {"a": {"b": [1, {"c": 2}]}, "d": "x"}
    assert isinstance(tree["a"]["b"], MarkedList)
    assert mark_at(tree, ()) == Mark(path, 1, 1)
    assert mark_at(tree, ("a",), key=True) == Mark(path, 1, 1)
    assert mark_at(tree, ("a", "b")) == Mark(path, 2, 6)
    assert mark_at(tree, ("a", "b", 1, "c")) == Mark(path, 2, 14)
    assert mark_at(tree, ("a", "b", 1, "c"), key=True) == Mark(path, 2, 11)
    assert mark_at(tree, ("d",), key=True) == Mark(path, 3, 1)


def test_a_place_that_was_not_written_is_its_innermost_written_ancestor(tmp_path: Path) -> None:
    tree = load_yaml(write(tmp_path, "a:\n  b: [1]\n"))
    assert isinstance(tree, MarkedDict)
    assert mark_at(tree, ("a", "nothing", "below")) == mark_at(tree, ("a",))
    assert mark_at(tree, ("a", "b", 7)) == mark_at(tree, ("a", "b"))
    assert mark_at(tree, ("a", "b", "text")) == mark_at(tree, ("a", "b"))


@pytest.mark.parametrize(
    ("text", "where", "says"),
    [
        ("a: 1\n\tb: 2\n", (2, 1), "a tab; allowed: spaces"),
        ("a: 'x\ty'\n", (1, 6), "a tab"),
        ("", (1, 1), "the file is empty"),
        (" \n\n", (1, 1), "the file is empty"),
        ("# a comment alone\n", (1, 1), "the file is empty"),
        ("a: 1\nb: 2\na: 3\n", (3, 1), "the key 'a' was already written on line 1"),
        ("a: {b: 1, b: 2}\n", (1, 11), "the key 'b' was already written on line 1"),
        (
            "a: !!python/object/apply:os.system [ls]\n",
            (1, 4),
            "the tag '!!python/object/apply:os.system'",
        ),
        ("a: !mine 1\n", (1, 4), "the tag '!mine'; allowed: no tags"),
        ("a: ! {b: 1}\n", (1, 4), "the tag '!'"),
        ("a: &x 1\n<<: *x\n", (2, 1), "the merge key '<<'"),
        ("a: *nowhere\n", (1, 4), "the alias *nowhere names no finished anchor"),
        ("a: &x [*x]\n", (1, 8), "the alias *x names no finished anchor"),
        ("a: 1\n---\nb: 2\n", (2, 1), "a second document"),
        ("1: a\n", (1, 1), "1 as a key; allowed: text"),
        ("null: a\n", (1, 1), "nothing as a key"),
        ("? [a]\n: b\n", (1, 3), "a list as a key"),
        ("a: &x [1]\n*x : 2\n", (2, 1), "a list as a key"),
        ("a: [1\n", (2, 1), "not YAML"),
        ("a: b: c\n", (1, 5), "not YAML: mapping values are not allowed here"),
        ("a: 'x\n", (2, 1), "not YAML"),
        ("a: @x\n", (1, 4), "not YAML"),
        ('a: "\\UFFFFFFFF"\n', (1, 1), "out of range"),
        ('a: "\\ud800"\n', (1, 4), "the character U+D800"),
        ('a: "\\0"\n', (1, 4), "the character U+0000"),
        ("a: 1\n# \ue001\n", (2, 3), "the private character U+E001"),
        ("a: 1\nb: \x07\n", (2, 4), "a control character"),
    ],
)
def test_refused_with_its_place(tmp_path: Path, text: str, where: tuple[int, int], says: str) -> None:
    error = refused(tmp_path, text)
    assert says in error.message
    assert place(error) == where


def test_bad_utf8_is_placed_by_characters(tmp_path: Path) -> None:
    error = refused(tmp_path, "a: 1\nb: é".encode() + b"\xff\n")
    assert place(error) == (2, 5)
    assert "byte 0xff is not UTF-8" in error.message


def test_utf16_is_refused_and_a_byte_order_mark_is_not(tmp_path: Path) -> None:
    assert "not UTF-8" in refused(tmp_path, "a: 1\n".encode("utf-16")).message
    path = tmp_path / "bom.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert load_yaml(path) == {"a": 1}


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    with path.open("wb") as file:
        file.truncate(50 * 1024 * 1024)
    with pytest.raises(SourceError, match=r"52,428,800 bytes; allowed: 262,144 bytes"):
        load_yaml(path)


def test_the_largest_file_is_read(tmp_path: Path) -> None:
    text = "a: 'x'\n"
    path = write(tmp_path, text + "#" * (MAX_BYTES - len(text)))
    assert load_yaml(path) == {"a": "x"}
    path.write_text(path.read_text() + "#")
    with pytest.raises(SourceError, match="262,145 bytes"):
        load_yaml(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be read: No such file"):
        load_yaml(tmp_path / "nothing.yaml")
    with pytest.raises(SourceError, match="is not a regular file"):
        load_yaml(tmp_path)
    fifo = tmp_path / "fifo.yaml"
    os.mkfifo(fifo)
    with pytest.raises(SourceError, match="is not a regular file"):
        load_yaml(fifo)


def test_an_alias_bomb_is_refused_and_small_aliases_are_not(tmp_path: Path) -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    for level in range(1, 10):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]")
    error = refused(tmp_path, "\n".join(lines))
    assert "more than 10,000 values, aliases written out" in error.message
    assert error.mark.line == 5
    tree = load_yaml(write(tmp_path, "a: &x {b: [1, 2]}\nc: *x\n"))
    assert tree == {"a": {"b": [1, 2]}, "c": {"b": [1, 2]}}


def test_many_values_are_refused(tmp_path: Path) -> None:
    assert "more than 10,000 values" in refused(tmp_path, "[" + "1," * 10_001 + "]").message


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_deep_nesting_is_refused_without_recursion(tmp_path: Path, opening: str) -> None:
    error = refused(tmp_path, opening * 40_000)
    assert "nested deeper than 50 levels" in error.message or "as a key" in error.message


def test_the_deepest_nesting_is_read(tmp_path: Path) -> None:
    tree: object = load_yaml(write(tmp_path, "[" * 50 + "]" * 50))
    for _ in range(49):
        assert isinstance(tree, list)
        (tree,) = tree
    assert tree == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("0.80", 0.8),
        ("-3", -3),
        ("+7", 7),
        (".5", 0.5),
        ("1.", 1.0),
        ("0", 0),
        ("true", True),
        ("false", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("90s", "90s"),
        ("2027-01-01", "2027-01-01"),
        ("builtin:sums-gqa", "builtin:sums-gqa"),
        ("'on'", "on"),
        ('"1:30"', "1:30"),
        ("'010'", "010"),
        ('"a\\tb"', "a\tb"),
        ("=", "="),
        ("[${x}, '${y}', a${z}b]", ["${x}", "${y}", "a${z}b"]),
        ("9" * 18, int("9" * 18)),
    ],
)
def test_scalars(tmp_path: Path, text: str, value: object) -> None:
    tree = load_yaml(write(tmp_path, f"a: {text}\n"))
    assert isinstance(tree, dict)
    assert tree["a"] == value
    assert isinstance(tree["a"], type(value))
    assert isinstance(tree["a"], bool) == isinstance(value, bool)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("on", "a boolean in YAML 1.1 only"),
        ("Off", "a boolean in YAML 1.1 only"),
        ("yes", "a boolean in YAML 1.1 only"),
        ("NO", "a boolean in YAML 1.1 only"),
        ("True", "a boolean in YAML 1.1 only"),
        ("y", "a boolean in YAML 1.1 only"),
        ("1:30", "counts in sixties"),
        ("1:30:00.5", "counts in sixties"),
        ("010", "may be octal"),
        ("0o17", "may be octal"),
        ("0x1F", "is not decimal"),
        ("0b1", "is not decimal"),
        ("1_000", "no plain number"),
        ("1" * 5000, "no plain number"),
        (".nan", "not a finite number"),
        ("-.INF", "not a finite number"),
        ("1e999", "too large"),
    ],
)
def test_scalars_that_mean_two_things_are_refused(tmp_path: Path, text: str, says: str) -> None:
    error = refused(tmp_path, f"a: {text}\n")
    assert says in error.message
    assert "allowed: " in error.message
    assert place(error) == (1, 4)


texts = st.text("ab :#-'\"[]{}é\n", max_size=6)
keys = st.text("abc d", min_size=1, max_size=3)
scalars = st.none() | st.booleans() | st.integers(-(10**17), 10**17) | texts
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)
documents = st.dictionaries(keys, trees, min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(tree=documents, flow=st.booleans())
def test_what_pyyaml_writes_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, object], flow: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "written.yaml"
    path.write_text(yaml.safe_dump(tree, default_flow_style=flow, allow_unicode=True), encoding="utf-8")
    assert load_yaml(path) == tree
