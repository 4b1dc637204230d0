"""Which files of a catalogue are suites: nothing that looks like one is left out in silence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from suite_helpers import GOOD, write

from harness.suites import check_catalogue, load_catalogue, select


def told(root: Path) -> dict[str, str]:
    """File → message of everything that is wrong with the catalogue."""
    return {error.mark.file.relative_to(root).as_posix(): error.message for error in check_catalogue(root)}


def test_links_are_followed_to_files_and_folders_but_never_round(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "suites", tmp_path / "elsewhere"
    write(root, GOOD, "a.yaml")
    write(elsewhere, GOOD, "deep/b.yaml")
    (root / "linked.yaml").symlink_to(elsewhere / "deep" / "b.yaml")
    (root / "folder").symlink_to(elsewhere)
    (elsewhere / "back").symlink_to(root)
    (root / "self").symlink_to(".")
    assert load_catalogue(root).names == ("a", "folder/deep/b", "linked")


def test_what_looks_like_a_suite_and_is_none_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.yaml")
    (tmp_path / "dangling.yaml").symlink_to(tmp_path / "nothing")
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    (tmp_path / "zeros.yaml").symlink_to("/dev/zero")
    write(tmp_path, GOOD, "short.yml")
    write(tmp_path, GOOD, "LOUD.YAML")
    assert told(tmp_path) == {
        "fifo.yaml": "is not a regular file",
        "dangling.yaml": "the link leads nowhere",
        "loop.yaml": "the link leads nowhere",
        "zeros.yaml": "is not a regular file",
        "short.yml": "the name ends in .yml; allowed: .yaml",
        "LOUD.YAML": "the name ends in .YAML; allowed: .yaml",
    }


def test_hidden_files_and_bases_are_no_suites(tmp_path: Path) -> None:
    for name in (
        "_base.yaml",
        ".hidden.yaml",
        ".git/x.yaml",
        "folder.yaml/x.yaml",
        "_bases/x.yaml",
        "README.md",
    ):
        write(tmp_path, GOOD, name)
    (tmp_path / ".#lock.yaml").symlink_to("someone@host")  # what Emacs leaves beside a file that is edited
    assert load_catalogue(tmp_path).names == ("_bases/x", "folder.yaml/x")


@pytest.mark.parametrize("name", ["x@cpu", "[x]", "a*", "a,b", "a\nb", "a?b", "\udcff"])
def test_a_name_that_no_pattern_or_job_id_can_hold(name: str, tmp_path: Path) -> None:
    write(tmp_path, GOOD, f"{name}.yaml")
    (message,) = told(tmp_path).values()
    assert message.startswith(f"the name {name!r}; allowed: letters, digits")


@pytest.mark.parametrize("name", ["x", "Q3.5", "with space", "größe", "a+b", "deep/er/x", "my folder/x"])
def test_a_name_selects_its_suite(name: str, tmp_path: Path) -> None:
    write(tmp_path, GOOD, f"{name}.yaml")
    write(tmp_path, GOOD, "other.yaml")
    assert [suite.name for suite in select(load_catalogue(tmp_path), [name])] == [name]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_folder_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    write(tmp_path, GOOD, "closed/x.yaml")
    (tmp_path / "closed").chmod(0)
    assert told(tmp_path) == {"closed": "the folder cannot be read: Permission denied"}
    (tmp_path / "closed").chmod(0o700)
