"""What `--source` may point at, and what is said of the code there."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from small_engine import package, write_tree

from harness.environments import read_source
from harness.errors import UsageError


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """As upstream lays it out, in a folder that has the name of the package too."""
    return write_tree(tmp_path / "sglang", {f"python/{k}": v for k, v in package("0.5.18").items()})


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    done = subprocess.run(["git", "-C", folder, *who, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit_all(folder: Path) -> str:
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "all")
    return git(folder, "rev-parse", "HEAD")


@pytest.mark.parametrize("inside", [".", "python", "python/sglang"])
def test_a_checkout_its_python_folder_and_its_package_are_one_source(checkout: Path, inside: str) -> None:
    source = read_source(checkout / inside)
    assert (source.root, source.package_root) == (checkout, checkout / "python")
    assert source.version == "0.5.18"
    assert source == read_source(checkout)


@pytest.mark.parametrize("inside", [".", "sglang"])
def test_a_folder_that_holds_the_package_is_its_own_root(tmp_path: Path, inside: str) -> None:
    write_tree(tmp_path / "unpacked", package("0.5.17"))
    source = read_source(tmp_path / "unpacked" / inside)
    assert source.root == source.package_root == tmp_path / "unpacked"
    assert (source.version, source.commit) == ("0.5.17", None)


def test_a_relative_path_counts_from_here(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkout / "python")
    assert read_source(Path()) == read_source(checkout)


@pytest.mark.parametrize(("place", "why"), [("empty", "holds no package"), ("missing", "is no folder")])
def test_anything_else_is_refused_with_what_is_allowed(tmp_path: Path, place: str, why: str) -> None:
    (tmp_path / "empty" / "sglang").mkdir(parents=True)  # the name alone is not enough
    with pytest.raises(UsageError, match=rf"{place} {why}.*allowed: a checkout"):
        read_source(tmp_path / place)


def test_a_tree_without_the_version_file_has_none(checkout: Path) -> None:
    (checkout / "python/sglang/_version.py").unlink()
    assert read_source(checkout).version is None


def test_the_commit_of_a_checkout_says_when_the_package_differs_from_it(checkout: Path) -> None:
    commit = commit_all(checkout)
    assert read_source(checkout).commit == commit
    (checkout / "notes.txt").write_text("not part of the package")
    assert read_source(checkout).commit == commit
    (checkout / "python/sglang/srt/new.py").write_text("")
    assert read_source(checkout).commit == f"{commit}+dirty"


def test_a_repository_that_only_lies_around_the_source_says_nothing_about_it(tmp_path: Path) -> None:
    write_tree(
        tmp_path, {".gitignore": "unpacked/\n", **{f"unpacked/{k}": v for k, v in package("x").items()}}
    )
    commit_all(tmp_path)
    assert read_source(tmp_path / "unpacked").commit is None


# a few names and contents, so that trees which differ in one thing are common
TREES = st.dictionaries(
    st.sampled_from(["a.py", "b.py", "ab.py", "d/a.py", "d/b.py"]),
    st.sampled_from(["", "a", "b", "ab", "a\n"]),
)


@given(TREES, TREES)
@example({"a.py": "b.py\0\0"}, {"a.py": "", "b.py": ""})  # contents that could pass for the next file
@example({"a.py": "b.py\0"}, {"a.py": "", "b.py": ""})
def test_the_digest_names_paths_and_contents(one: dict[str, str], other: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        digests = []
        for name, files in (("one", one), ("other", other)):
            tree = {f"sglang/srt/{path}": text for path, text in files.items()}
            # what is not Python under srt does not count
            tree |= {"sglang/srt/notes.txt": name, "sglang/other.py": name}
            digests.append(read_source(write_tree(Path(folder) / name, tree)).digest)
    assert (digests[0] == digests[1]) == (one == other)
