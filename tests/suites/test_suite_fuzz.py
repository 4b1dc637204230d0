"""Whatever a file holds, the loader loads it or raises a usage error with a place: never anything else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from suite_helpers import DATA, GOOD, REPOSITORY

from harness.errors import SourceErrors
from harness.suites import ProfileName, check_catalogue, expand, load_suite

NORMATIVE = (DATA / "normative.yaml").read_text(encoding="utf-8")
BOUNDED = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
PIECES = [
    *(
        "${x}",
        "${",
        "*a",
        "&a",
        "!!int",
        "<<",
        "{",
        "}",
        "[",
        "]",
        ":",
        "- ",
        "? ",
        "\t",
        "\n",
        "null",
        "-1",
        "0",
    ),
    *(
        "1e999",
        "1:30",
        "on",
        "''",
        '"\\ud800"',
        '"\\UFFFFFFFF"',
        "%YAML 9.9",
        "---",
        "...",
        "#",
        "é",
        "\x00",
        "\x85",
    ),
    *(
        "extends: x.yaml",
        "matrix: {a: [1]}",
        "cpu: 1",
        "tests: ['**/*.py']",
        "checks: 3",
        "profiles: []",
        "9" * 30,
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def loads_or_says_where(folder: Path, data: bytes) -> None:
    path = folder / "x.yaml"
    path.write_bytes(data)
    lines = (
        data.count(b"\n")
        + data.count(b"\r")
        + data.count("\x85".encode())
        + data.count("\u2028".encode())
        + 2
    )
    try:
        suite = load_suite(path, root=folder)
    except SourceErrors as found:
        assert found.errors
        for error in found.errors:
            assert error.mark.file == path
            assert 1 <= error.mark.line <= lines
            assert error.mark.column >= 1
            assert str(error).encode("utf-8")
    else:
        assert all(job.checks or job.tests for profile in ProfileName for job in expand(suite, profile))


@BOUNDED
@given(data=st.binary(max_size=200))
def test_any_bytes(folder: Path, data: bytes) -> None:
    loads_or_says_where(folder, data)


@BOUNDED
@given(text=st.text(max_size=200))
def test_any_text(folder: Path, text: str) -> None:
    loads_or_says_where(folder, text.encode("utf-8", "replace"))


@BOUNDED
@given(pieces=st.lists(st.sampled_from([*PIECES, "a", "b", " ", "\n  ", ": ", ", "]), max_size=40))
def test_any_soup_of_syntax(folder: Path, pieces: list[str]) -> None:
    loads_or_says_where(folder, "".join(pieces).encode())


@BOUNDED
@given(data=st.data())
def test_a_right_file_with_pieces_put_in_or_cut_out(folder: Path, data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([GOOD, NORMATIVE]))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        length = data.draw(st.integers(0, 12))
        text = text[:start] + data.draw(st.sampled_from([*PIECES, ""])) + text[start + length :]
    loads_or_says_where(folder, text.encode("utf-8"))


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 10**20)
    | st.floats()
    | st.sampled_from(PIECES)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["cpu", "gpu", "a", "dcp", "tp", "args"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@BOUNDED
@given(data=st.data())
def test_a_right_file_with_any_value_in_the_place_of_another(folder: Path, data: st.DataObject) -> None:
    tree = yaml.safe_load(data.draw(st.sampled_from([GOOD, NORMATIVE])))
    node = tree
    while True:
        key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        if not isinstance(node[key], dict | list) or not node[key] or data.draw(st.booleans()):
            break
        node = node[key]
    node[key] = data.draw(values)
    loads_or_says_where(folder, yaml.safe_dump(tree, sort_keys=False).encode("utf-8", "replace"))


@pytest.mark.parametrize(
    "text", ["a: " + "${" * 120_000, "a: " + "${x}" * 60_000, "? " + "k" * 200_000 + "\n: 1"]
)
def test_long_texts_are_answered_in_one_pass_and_few_words(folder: Path, text: str) -> None:
    path = folder / "x.yaml"
    path.write_text(text)
    with pytest.raises(SourceErrors) as caught:
        load_suite(path, root=folder)
    assert len(str(caught.value)) < 2000


def test_many_files_say_all_they_have_to(tmp_path: Path) -> None:
    for index, piece in enumerate(PIECES):
        (tmp_path / f"{index}.yaml").write_text(piece, encoding="utf-8")
    assert {error.mark.file.name for error in check_catalogue(tmp_path)} == {
        f"{i}.yaml" for i in range(len(PIECES))
    }


def test_the_room_loads_neither_torch_nor_a_database() -> None:
    code = "import sys, harness.suites; print(sorted({'torch', 'sqlalchemy', 'pytest'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
