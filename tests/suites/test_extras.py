"""Extras that a job needs: named in the suite, found without an import, told where they are missing."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from suite_helpers import GOOD, REPOSITORY, load, only_error, text_at

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
    monkeypatch.setattr(module, "find_spec", lambda name: spec_of(name) if name == build else None)
    monkeypatch.setattr(module, "version", lambda name: "1.5.0")
    assert installed_extras() == {Extra.NIXL}


def spec_of(name: str) -> ModuleSpec:
    return ModuleSpec(name, None, origin=f"/x/{name}/__init__.py")


@pytest.mark.parametrize(
    ("release", "enough"),
    [("3.5.0", True), ("3.10", True), ("4.0.1+git8", True), ("3.4.9", False), ("2.9", False)],
)
def test_an_older_release_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, release: str, enough: bool
) -> None:
    monkeypatch.setattr(module, "find_spec", spec_of)
    monkeypatch.setattr(module, "version", lambda name: release if name == "triton" else "1.5")
    assert (Extra.TRITON in installed_extras()) is enough


def test_bounds_are_those_of_the_package() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    for extra in Extra:
        (needed,) = project["optional-dependencies"][extra]
        assert f">={'.'.join(map(str, extra.least))}" in needed


def test_an_empty_folder_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a removed one leaves behind; Python finds it."""
    for build in ("nixl_cu12", "nixl_cu13", "triton"):
        (tmp_path / build).mkdir()
        # What has been imported is found without a look at the path.
        monkeypatch.delitem(sys.modules, build, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert installed_extras() == set()


def test_an_extra_twice_is_refused(tmp_path: Path) -> None:
    error = only_error(tmp_path, GOOD.replace("{cpu: 1}", "{cpu: 1, extras: [triton, nixl, triton]}"))
    assert "needs.extras: names 'triton' twice; allowed: each once" in str(error)
    assert text_at(error).startswith("[triton, nixl")


def test_finding_them_imports_nothing() -> None:
    """Triton reads its environment when it is imported: a look must not be that moment."""
    code = "import sys; from harness.suites import installed_extras; installed_extras(); "
    code += "print([m for m in ('torch', 'triton', 'nixl_cu12') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
