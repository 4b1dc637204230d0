"""What harness calls itself: its commit, its version, or in a bare copy the digest of its files."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import ROOT

# Ends in the name, whatever else is printed. Packages of the environment stay, but the record of harness does not.
SAY = """
import importlib.metadata
def version(name):
    raise importlib.metadata.PackageNotFoundError(name)
importlib.metadata.version = version
from harness.cli.places import CHECKOUT, harness_sha
print(CHECKOUT)
print(harness_sha())
"""


def name_of(copy: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SAY],
        env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=copy,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    checkout, name = done.stdout.splitlines()
    assert checkout == str(copy)
    return name


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A copy of the package alone: no repository, and nothing installed."""
    copy = tmp_path / "copy"
    shutil.copytree(ROOT / "harness", copy / "harness", ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def test_a_bare_copy_is_named_by_its_files(bare: Path) -> None:
    first = name_of(bare)
    assert re.fullmatch(r"source [0-9a-f]{64}", first)
    assert name_of(bare) == first
    with (bare / "harness" / "errors.py").open("a") as file:
        file.write("# changed\n")
    assert re.fullmatch(r"source [0-9a-f]{64}", name_of(bare))
    assert name_of(bare) != first


def test_a_copy_inside_a_repository_is_none_of_its_commits(bare: Path) -> None:
    git = ["git", "-C", str(bare.parent), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "another project"], check=True)
    assert name_of(bare).startswith("source ")
    subprocess.run([*git, "add", "copy"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "vendored"], check=True)
    assert re.fullmatch(r"[0-9a-f]{40}", name_of(bare))
