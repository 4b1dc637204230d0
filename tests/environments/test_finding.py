"""Which environment is found: by version, as the default, for a source."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from small_engine import SmallEngine, fake_environment, package, write_tree

from harness.environments import (
    EnvironmentMissingError,
    environment_for,
    envs_folder,
    find_environment,
    is_current,
    list_environments,
    read_source,
)
from harness.environments.match import wanted_pins
from harness.environments.releases import known_releases
from harness.errors import UsageError

CHECKOUT = Path(__file__).resolve().parents[2]


def source_of(folder: Path, files: dict[str, str]):
    return read_source(write_tree(folder, files))


def test_the_folder_is_that_of_the_variable_or_of_the_checkout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HARNESS_ENVS", raising=False)
    assert envs_folder() == CHECKOUT / ".envs"
    monkeypatch.setenv("HARNESS_ENVS", "elsewhere")
    assert envs_folder() == tmp_path / "elsewhere"


def test_nothing_built_is_told_with_the_command_that_builds(envs: Path) -> None:
    assert list_environments() == []
    with pytest.raises(
        EnvironmentMissingError, match=r"make it with: make sglang VERSION=0\.5\.18"
    ) as raised:
        find_environment("sglang")
    assert raised.value.command == "make sglang VERSION=0.5.18"


def test_a_missing_release_is_told_with_those_that_are_there(envs: Path) -> None:
    fake_environment(envs, "0.5.18")
    with pytest.raises(
        EnvironmentMissingError, match=r"sglang 0\.5\.17 \(built: 0\.5\.18\).*VERSION=0\.5\.17"
    ):
        find_environment("sglang", version="0.5.17")


def test_a_release_that_nobody_can_build_is_told_with_those_that_can_be(
    small_data: SmallEngine, envs: Path
) -> None:
    """Unless it lies there already, as one that an older harness made does."""
    fake_environment(envs, "0.5.99")
    assert find_environment("sglang", version="0.5.99").version == "0.5.99"
    with pytest.raises(UsageError, match=r"sglang 0\.5\.98 \(built: 0\.5\.99\), and none") as raised:
        find_environment("sglang", version="0.5.98")
    assert not isinstance(raised.value, EnvironmentMissingError)
    assert "make" not in str(raised.value)
    assert ", ".join(known_releases()) in str(raised.value)


def test_an_engine_without_environments_is_refused(envs: Path) -> None:
    with pytest.raises(UsageError, match="'vllm'; allowed: sglang"):
        find_environment("vllm")


def test_the_default_is_what_was_made_last_else_the_highest_release(envs: Path) -> None:
    made = ["0.5.9", "0.5.18", "0.5.17"]
    random.shuffle(made)
    for version in made:
        fake_environment(envs, version)
    assert find_environment("sglang").version == "0.5.18"
    (envs / "current-sglang").write_text("sglang-0.5.9\n")
    assert find_environment("sglang").version == "0.5.9"
    assert [is_current(e) for e in list_environments()] == [False, False, True]
    (envs / "current-sglang").write_text("sglang-0.5.7\n")
    assert find_environment("sglang").version == "0.5.18"


def test_dependencies_without_a_package_are_never_the_default(envs: Path) -> None:
    fake_environment(envs, "", name="sglang-source-transformers-5.12.1")
    assert [e.name for e in list_environments()] == ["sglang-source-transformers-5.12.1"]
    with pytest.raises(EnvironmentMissingError):
        find_environment("sglang")


@pytest.mark.parametrize("gone", ["base-torch-2.13.0", "sglang-0.5.18/bin/python"])
def test_an_environment_that_cannot_start_any_more_is_none(envs: Path, gone: str) -> None:
    fake_environment(envs, "0.5.18")
    assert len(list_environments()) == 1
    shutil.rmtree(envs / gone) if (envs / gone).is_dir() else (envs / gone).unlink()
    assert list_environments() == []


def test_a_half_made_folder_is_none(envs: Path) -> None:
    place = fake_environment(envs, "0.5.18")
    place.rename(envs / ".making-sglang-0.5.18")
    assert list_environments() == []


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 2}'])
def test_a_record_of_another_shape_is_told(envs: Path, text: str) -> None:
    place = fake_environment(envs, "0.5.18")
    (place / "environment.json").write_text(text)
    with pytest.raises(UsageError, match=r"cannot be read; remove .*sglang-0\.5\.18"):
        list_environments()


def test_a_source_says_by_its_pyproject_what_it_wants(small_data: SmallEngine, tmp_path: Path) -> None:
    """Not by its version, which a checkout may have of an earlier build."""
    text = '  "transformers-extras==1.0",\n  "transformers==5.19.0",\n'
    source = source_of(tmp_path, {**package("0.5.18"), "pyproject.toml": f"dependencies = [\n{text}]\n"})
    assert wanted_pins(source).transformers == "5.19.0"


def test_an_unpacked_release_says_it_by_its_metadata(small_data: SmallEngine, tmp_path: Path) -> None:
    metadata = {"sglang-0.5.99.dist-info/METADATA": "Name: sglang\nRequires-Dist: transformers==5.12.1\n"}
    assert wanted_pins(source_of(tmp_path, {**package("0.5.99"), **metadata})).transformers == "5.12.1"


@pytest.mark.parametrize(
    ("version", "live", "wanted"),
    [("0.5.24", True, "6.0.0"), ("unknown", True, "5.12.1"), ("unknown", False, "6.0.0")],
)
def test_a_bare_package_goes_by_its_version_else_by_its_generation(
    small_data: SmallEngine, tmp_path: Path, version: str, live: bool, wanted: str
) -> None:
    assert wanted_pins(source_of(tmp_path, package(version, live=live))).transformers == wanted


def test_pins_that_nobody_knows_are_told(small_data: SmallEngine, tmp_path: Path) -> None:
    text = 'dependencies = ["transformers==4.57.1"]\n'
    source = source_of(tmp_path, {**package("x"), "pyproject.toml": text})
    with pytest.raises(UsageError, match=r"transformers 4\.57\.1; pins are known for: 5\.12\.1, 5\.19\.0"):
        wanted_pins(source)


def test_a_source_gets_its_own_release_else_the_current_one_else_the_highest(
    small_data: SmallEngine, envs: Path, tmp_path: Path
) -> None:
    fake_environment(envs, "0.5.23", transformers="5.19.0")
    fake_environment(envs, "", name="sglang-source-transformers-5.12.1")
    own = source_of(tmp_path / "own", package("0.5.9"))
    bare = source_of(tmp_path / "bare", package("unknown"))
    assert environment_for(bare).name == "sglang-source-transformers-5.12.1"
    for version in ("0.5.9", "0.5.18", "0.5.17"):
        fake_environment(envs, version)
    assert environment_for(bare).version == "0.5.18"
    (envs / "current-sglang").write_text("sglang-0.5.17\n")
    assert environment_for(bare).version == "0.5.17"
    assert environment_for(own).version == "0.5.9"


def test_a_source_that_no_environment_fits_is_told_with_the_command(
    small_data: SmallEngine, envs: Path, tmp_path: Path
) -> None:
    fake_environment(envs, "0.5.18")
    source = source_of(tmp_path / "new", package("x", live=False))
    with pytest.raises(EnvironmentMissingError, match=r"transformers 6\.0\.0.*make sglang SOURCE="):
        environment_for(source)
