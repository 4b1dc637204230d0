"""Extras that a job needs: named in the suite, found without an import, told where they are missing."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from suite_helpers import GOOD, REPOSITORY, load, only_error

from harness.suites import Extra, ProfileName, expand, installed_extras
from harness.suites import extras as module


def test_a_job_carries_its_extras(tmp_path: Path) -> None:
    (job,) = expand(load(tmp_path, GOOD), ProfileName.CPU)
    assert job.needs.extras == ()
    needing = GOOD.replace("{cpu: 1}", "{cpu: 1, extras: [triton, nixl]}")
    (job,) = expand(load(tmp_path, needing), ProfileName.CPU)
    assert job.needs.extras == (Extra.TRITON, Extra.NIXL)


def test_an_unknown_extra_gets_a_near_name(tmp_path: Path) -> None:
    error = only_error(tmp_path, GOOD.replace("{cpu: 1}", "{cpu: 1, extras: [tritn]}"))
    assert "extras[0]: 'tritn' is unknown; did you mean 'triton'? (allowed: triton, nixl)" in str(error)


def test_every_extra_is_one_of_the_package() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert set(Extra) <= set(project["optional-dependencies"])


@pytest.mark.parametrize("build", ["nixl_cu12", "nixl_cu13"])
def test_what_cannot_be_found_is_not_installed(monkeypatch: pytest.MonkeyPatch, build: str) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: object() if name == build else None)
    assert installed_extras() == {Extra.NIXL}


def test_finding_them_imports_nothing() -> None:
    """Triton reads its environment when it is imported: a look must not be that moment."""
    code = "import sys; from harness.suites import installed_extras; installed_extras(); "
    code += "print([m for m in ('torch', 'triton', 'nixl_cu12') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
