"""Real builds of a small engine: what is left by one that ends, fails, is killed or meets another."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from rich.console import Console
from small_engine import SmallEngine, package, write_tree

from harness.environments import (
    EnvironmentBuildError,
    find_environment,
    list_environments,
    read_source,
    releases,
)
from harness.environments.build import build_for_source, build_release, check_machine
from harness.environments.progress import Steps
from harness.errors import UsageError

BASE = "base-torch-2.13.0"
# Far beyond what a build of the small engine takes on a machine that does much else.
HANG_SECONDS = 600


class Told(Steps):
    """Steps, and what they said."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        super().__init__(Console(file=self.stream, width=200))

    @property
    def text(self) -> str:
        return self.stream.getvalue()


@pytest.fixture(scope="module")
def built(small_engine: SmallEngine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 0.5.18, made by the command; tests copy it."""
    envs = tmp_path_factory.mktemp("built") / "envs"
    done = small_engine.start("sglang", envs=envs)
    out, err = done.communicate(timeout=HANG_SECONDS)
    assert done.returncode == 0, err
    assert "sglang-0.5.18: 3 of 3 modules import" in out
    return envs


@pytest.fixture
def envs_built(built: Path, envs: Path) -> Path:
    """A copy in another place: a folder of environments may be moved as a whole."""
    shutil.copytree(built, envs, symlinks=True)
    return envs


def names(envs: Path) -> set[str]:
    return {path.name for path in envs.iterdir()}


def run(python: Path, code: str) -> str:
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_built_environment_starts_sees_its_own_packages_and_those_of_the_base(envs_built: Path) -> None:
    environment = find_environment("sglang")
    assert (environment.name, environment.version) == ("sglang-0.5.18", "0.5.18")
    assert (environment.generation, environment.transformers) == ("live", "5.12.1")
    code = "import sys, sglang, shared_thing, torch; print(sys.prefix, sglang.__file__, torch.__file__, sep='\\n')"
    prefix, package, torch = run(environment.python, code).splitlines()
    assert Path(prefix) == envs_built / "sglang-0.5.18"
    assert Path(package).parent.parent == environment.package
    assert Path(torch).is_relative_to(envs_built / BASE)


def test_a_built_folder_holds_nothing_but_what_is_finished(envs_built: Path) -> None:
    assert names(envs_built) == {BASE, "sglang-0.5.18", "current-sglang", ".lock"}
    # commands of packages would start an interpreter at a path that is gone
    assert not list(envs_built.glob("*/bin/*-run"))
    assert not list(envs_built.glob("*/lib/*/site-packages/bin"))


def test_the_shim_is_an_installed_package_with_the_entry_point_of_torch(envs_built: Path) -> None:
    code = (
        "from importlib.metadata import entry_points, files;"
        "print([e.value for e in entry_points(group='torch.backends')]);"
        "print(all(f.locate().is_file() for f in files('harness_torchvision_schemas')))"
    )
    said = run(find_environment("sglang").python, code).splitlines()
    assert said == ["['harness_torchvision_schemas:load']", "True"]


def test_a_second_call_builds_nothing_and_makes_it_current(small_data: SmallEngine, envs_built: Path) -> None:
    (envs_built / "current-sglang").write_text("sglang-0.5.9\n")
    before = (envs_built / "sglang-0.5.18").stat().st_ino
    told = Told()
    build_release("0.5.18", folder=envs_built, torch_index="", steps=told)
    assert told.text == "sglang-0.5.18 is there already\n"
    assert (envs_built / "sglang-0.5.18").stat().st_ino == before
    assert (envs_built / "current-sglang").read_text() == "sglang-0.5.18\n"


def test_another_release_shares_the_base(small_data: SmallEngine, envs_built: Path) -> None:
    before = (envs_built / BASE).stat().st_ino
    told = Told()
    build_release("0.5.9", folder=envs_built, torch_index="", steps=told)
    assert (envs_built / BASE).stat().st_ino == before
    assert "shared base" not in told.text and "importing 3 modules" in told.text
    assert find_environment("sglang").version == "0.5.9"
    assert [e.version for e in list_environments()] == ["0.5.18", "0.5.9"]


def test_new_pins_of_the_base_build_base_and_environment_again(
    small_data: SmallEngine, envs_built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (envs_built / "sglang-0.5.18").stat().st_ino, (envs_built / BASE).stat().st_ino
    pins = tmp_path / "pins.txt"
    pins.write_text("shared_thing==1.0\n# changed\n")
    monkeypatch.setattr(releases, "BASE_PINS", pins)
    build_release("0.5.18", folder=envs_built, torch_index="", steps=Told())
    after = (envs_built / "sglang-0.5.18").stat().st_ino, (envs_built / BASE).stat().st_ino
    assert before[0] != after[0] and before[1] != after[1]
    assert names(envs_built) == {BASE, "sglang-0.5.18", "current-sglang", ".lock"}


def test_an_environment_that_does_not_import_is_no_environment(
    small_data: SmallEngine, envs_built: Path
) -> None:
    with pytest.raises(EnvironmentBuildError, match="1 of 2 modules do not import") as raised:
        build_release("0.5.23", folder=envs_built, torch_index="", steps=Told())
    assert "sglang.srt.runtime_context: ModuleNotFoundError" in raised.value.detail
    assert names(envs_built) == {BASE, "sglang-0.5.18", "current-sglang", ".lock"}
    assert find_environment("sglang").version == "0.5.18"


def test_a_failing_pip_is_one_error_with_its_last_lines(small_data: SmallEngine, envs_built: Path) -> None:
    with pytest.raises(EnvironmentBuildError, match=r"installing sglang==0\.5\.24 failed") as raised:
        build_release("0.5.24", folder=envs_built, torch_index="", steps=Told())
    assert "No matching distribution found for sglang==0.5.24" in raised.value.detail
    assert "WARNING" not in raised.value.detail
    assert names(envs_built) == {BASE, "sglang-0.5.18", "current-sglang", ".lock"}


def test_a_killed_build_leaves_nothing_that_looks_finished_and_holds_the_next_until_its_last_step_ended(
    small_engine: SmallEngine, envs_built: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    killed = small_engine.start("sglang", "--version", "0.5.9", envs=envs_built, gate=gate)
    with gate.open("w"):  # opens when the step reads: the environment is all there but for its proof
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        (envs_built / ".making-sglang-0.5.9" / "of-the-killed").touch()
        assert [e.version for e in list_environments()] == ["0.5.18"]
        following = small_engine.start("sglang", "--version", "0.5.9", envs=envs_built)
        assert following.stderr is not None
        assert "another build is at work" in following.stderr.readline()
    _, err = following.communicate(timeout=HANG_SECONDS)
    assert following.returncode == 0, err
    assert not (envs_built / "sglang-0.5.9" / "of-the-killed").exists()
    assert names(envs_built) == {BASE, "sglang-0.5.18", "sglang-0.5.9", "current-sglang", ".lock"}


def test_of_two_builders_of_the_same_the_second_waits_and_builds_nothing(
    small_engine: SmallEngine, envs_built: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    first = small_engine.start("sglang", "--version", "0.5.9", envs=envs_built, gate=gate)
    with gate.open("w"):
        second = small_engine.start("sglang", "--version", "0.5.9", envs=envs_built)
        assert second.stderr is not None
        waiting = second.stderr.readline()
    _, first_err = first.communicate(timeout=HANG_SECONDS)
    out, rest = second.communicate(timeout=HANG_SECONDS)
    assert (first.returncode, second.returncode) == (0, 0), first_err + rest
    assert "another build is at work" in waiting and "building" not in rest
    assert "sglang-0.5.9: 3 of 3" in out


def test_an_interrupted_build_says_so_and_leaves_nothing(
    small_engine: SmallEngine, envs_built: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    build = small_engine.start("sglang", "--version", "0.5.9", envs=envs_built, gate=gate)
    with gate.open("w"):
        build.send_signal(signal.SIGINT)
        _, err = build.communicate(timeout=HANG_SECONDS)
    assert build.returncode == 130 and "interrupted" in err
    assert names(envs_built) == {BASE, "sglang-0.5.18", "current-sglang", ".lock"}


def test_a_source_needs_no_build_where_a_release_has_its_dependencies(
    small_data: SmallEngine, envs_built: Path, tmp_path: Path
) -> None:
    source = read_source(write_tree(tmp_path / "tree", package("0.5.18")))
    told = Told()
    found = build_for_source(source, folder=envs_built, torch_index="", steps=told)
    assert found.name == "sglang-0.5.18"
    assert "sglang-0.5.18 has the dependencies of" in told.text


def test_for_a_source_with_other_pins_an_environment_without_the_package_is_built(
    small_data: SmallEngine, envs_built: Path, tmp_path: Path
) -> None:
    root = write_tree(tmp_path / "tree", {f"python/{k}": v for k, v in package("x", live=False).items()})
    (root / "python" / "pyproject.toml").write_text('dependencies = [\n  "transformers==6.0.0",\n]\n')
    found = build_for_source(read_source(root), folder=envs_built, torch_index="", steps=Told())
    assert (found.name, found.version) == ("sglang-source-transformers-6.0.0", "")
    assert not found.has_package and not (found.package / "sglang").exists()
    assert found.proof is not None and found.proof.failed == {}
    # the default stays a release: it is what runs where nobody gives a source
    assert find_environment("sglang").name == "sglang-0.5.18"
    assert (envs_built / "current-sglang").read_text() == "sglang-0.5.18\n"


def test_a_full_disk_is_told_before_anything_is_built(
    small_data: SmallEngine, envs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(envs.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=2**30))
    with pytest.raises(UsageError, match=r"needs about \d\.\d GiB and .* has 1\.0 GiB free.*HARNESS_ENVS"):
        build_release("0.5.18", folder=envs, torch_index="", steps=Told())
    assert names(envs) == {".lock"}


def test_an_interpreter_without_wheels_is_refused_with_those_that_have_some() -> None:
    elsewhere = releases.Base(torch="2.13.0", pythons=("3.8", "3.9"), pins=Path("x"), digest="")
    with pytest.raises(UsageError, match=r"wheels for Python 3\.8, 3\.9 on Linux x86_64; this is Python 3\."):
        check_machine(elsewhere)


def test_a_folder_that_cannot_be_written_is_told(small_data: SmallEngine, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot be written: .*HARNESS_ENVS"):
        build_release("0.5.18", folder=tmp_path / "file" / "envs", torch_index="", steps=Told())
