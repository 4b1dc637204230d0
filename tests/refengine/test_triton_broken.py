"""A Triton that is there and does not work: one line before anything starts, and `doctor` says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.refengine.triton_kernels.installed import require_triton

ROOT = Path(__file__).parents[2]

# The files of an installation, and what is told of it.
BROKEN = {
    "raises": ({"__init__.py": "raise RuntimeError('built for another')\n"}, "built for another"),
    "dies": ({"__init__.py": "import os; os._exit(9)\n"}, "exit status 9"),
    "half": ({"__init__.py": "__version__ = '3.7.0'\n"}, "No module named 'triton.language'"),
    "old": (
        {
            "__init__.py": "__version__ = '3.4.9'\n",
            "language/__init__.py": "",
            "runtime/__init__.py": "",
            "runtime/interpreter.py": "",
        },
        "needs Triton 3.5 or newer, found 3.4.9",
    ),
}


def run(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *args],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(params=BROKEN)
def broken(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    files, says = BROKEN[request.param]
    for name, text in files.items():
        file = tmp_path / "triton" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path, says


def test_a_launch_is_refused_in_one_line(broken: tuple[Path, str]) -> None:
    folder, says = broken
    done = run(folder, "harness", "engine", "serve", "--attention-backend", "triton")
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert says in line
    assert "pip install 'harness[triton]'" in line


def test_the_kernels_tests_have_one_error_for_the_file(broken: tuple[Path, str]) -> None:
    folder, says = broken
    plugins = ("-p", "no:harness", "-p", "harness.pytest_plugin", "-p", "no:cacheprovider")
    done = run(folder, "pytest", *plugins, "suites/kernels/test_dcp_decode.py")
    assert done.returncode == 2, done.stdout
    assert "1 error in" in done.stdout
    assert says in done.stdout
    assert "Traceback" not in done.stdout


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("raise RuntimeError('built for another')\n", "RuntimeError: built for another"),
        ("__version__ = '3.4.9'\n", "triton 3.4.9 is older than 3.5"),
    ],
)
def test_doctor_tells_the_truth(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text(text)
    done = run(tmp_path, "harness", "doctor", "--json", "--reports", str(tmp_path))
    assert done.returncode == 1, done.stdout
    assert says in done.stdout


def test_an_empty_folder_is_no_triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a removed package leaves behind; Python finds it."""
    (tmp_path / "triton").mkdir()
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(UsageError, match=r"which is not installed: pip install 'harness\[triton\]'"):
        require_triton()
