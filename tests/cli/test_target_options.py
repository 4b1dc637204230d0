"""`--target` and `--source`: what they mean together, what is wrong usage, and what only keeps jobs from running."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import assert_usage_error, harness

from harness.cli.places import CHECKOUT
from harness.cli.targets import find_targets, label
from harness.environments import EngineSource, Environment
from harness.errors import UsageError
from harness.suites import Target

RELEASE = Environment(
    name="sglang-0.5.18",
    engine="sglang",
    version="0.5.18",
    python=Path("/envs/sglang-0.5.18/bin/python"),
    package=Path("/envs/sglang-0.5.18/lib"),
)
TREE = EngineSource(
    root=Path("/sg"), package_root=Path("/sg/python"), version=None, commit="c" * 40, digest="d" * 64
)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (None, "sglang 0.5.18"),
        (TREE, f"sglang source commit {'c' * 12}, dependencies of 0.5.18"),
        (replace(TREE, version="0.5.19"), f"sglang 0.5.19 source commit {'c' * 12}"),
        (replace(TREE, version="0.5.19", commit=None), f"sglang 0.5.19 source digest {'d' * 12}"),
        (
            replace(TREE, version="0.5.19", commit="c" * 40 + "+dirty"),
            f"sglang 0.5.19 source commit {'c' * 12}+dirty digest {'d' * 12}",
        ),
    ],
)
def test_the_package_has_one_name_for_each_code(source: EngineSource | None, says: str) -> None:
    assert label(RELEASE, source) == says


def test_an_environment_without_a_release_names_none() -> None:
    assert label(replace(RELEASE, version=""), TREE) == f"sglang source commit {'c' * 12}"


@pytest.fixture
def no_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HARNESS_ENVS", str(tmp_path / "envs"))
    return tmp_path / "envs"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout of an engine, as far as its shape goes."""
    package = tmp_path / "tree" / "python" / "sglang" / "srt"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    return tmp_path / "tree"


def test_without_options_nothing_is_asked_for(no_environment: Path) -> None:
    found = find_targets(None, source=None)
    assert (found.asked, found.source, dict(found.environments)) == (None, None, {})
    assert "make sglang" in (found.missing["sglang"] or "")


def test_a_source_asks_for_its_target(no_environment: Path, tree: Path) -> None:
    found = find_targets(None, source=tree)
    assert (found.asked, found.source) == (Target.SGLANG, tree)
    assert "make sglang SOURCE=" in (found.missing["sglang"] or "")
    assert find_targets("sglang", source=tree / "python").source == tree
    with pytest.raises(UsageError, match="allowed with it: --target sglang"):
        find_targets("reference", source=tree)


def test_a_broken_environment_harms_only_those_who_ask_for_it(no_environment: Path) -> None:
    broken = no_environment / "sglang-0.5.18"
    broken.mkdir(parents=True)
    (broken / "environment.json").write_text("{")
    assert "build it again" in (find_targets(None, source=None).missing["sglang"] or "")
    with pytest.raises(UsageError, match="build it again"):
        find_targets("sglang", source=None)


def test_a_version_that_is_not_built_is_wrong_usage(no_environment: Path) -> None:
    done = harness("run", "dcp/layout_unit", "--target", "sglang@0.5.17", HARNESS_ENVS=str(no_environment))
    assert_usage_error(done, "sglang 0.5.17", "make sglang VERSION=0.5.17")


def test_nobody_is_told_to_build_a_version_that_cannot_be_built(no_environment: Path) -> None:
    done = harness("run", "dcp/layout_unit", "--target", "sglang@0.5.99", HARNESS_ENVS=str(no_environment))
    assert_usage_error(done, "sglang 0.5.99", "none can be built", "0.5.18", "--source PATH")
    assert "VERSION=" not in done.told


def test_wrong_targets_and_sources_are_wrong_usage(tmp_path: Path) -> None:
    assert_usage_error(harness("plan", "dcp/layout_unit", "--target", "slang"), "did you mean 'sglang'")
    assert_usage_error(harness("list", "dcp/*", "--target", "slang"), "did you mean 'sglang'")
    done = harness("plan", "dcp/layout_unit", "--source", str(tmp_path / "none"))
    assert_usage_error(done, str(tmp_path / "none"), "is no folder")


@pytest.mark.parametrize("command", ["run", "plan"])
@pytest.mark.parametrize("option", [("--source", ""), ("--source=",), ("--target", "")])
def test_an_empty_option_is_no_option_left_out(
    command: str, option: tuple[str, ...], tree: Path, tmp_path: Path
) -> None:
    """Started in a checkout, so that an empty path would be one."""
    done = harness(command, "dcp/layout_unit", *option, cwd=tree, reports=tmp_path / "reports")
    assert_usage_error(done, "allowed: ", option[0].strip("=") if "source" in option[0] else "reference")


def test_the_help_of_run_says_how_a_point_is_written_and_what_nothing_ran_means() -> None:
    """Brackets are markup to whoever prints the help, who swallows them unescaped."""
    told = " ".join(harness("run", "--help").out.replace("│", " ").split())
    for words in (
        "'SUITE[dcp=4]'",
        "'sglang/dcp_units[file=*layout*]'",
        "3: something could not be judged, or nothing ran",
    ):
        assert words in told


def test_list_keeps_the_suites_that_have_the_target() -> None:
    done = harness("list", "dcp/*", "sglang/*", "--target", "sglang", "--json")
    suites = {suite["name"]: suite["targets"] for suite in json.loads(done.out)["suites"]}
    assert suites["sglang/dcp_units"] == ["sglang"]
    assert "dcp/parity_dcp4" not in suites
    assert_usage_error(
        harness("list", "dcp/parity_dcp4", "--target", "sglang"), "no selected suite has the target sglang"
    )


def test_a_missing_environment_keeps_its_jobs_from_running(tmp_path: Path) -> None:
    """Exit 3 since nothing ran, also where the target was not asked for by name; the command that makes it is
    told; nothing crashes."""
    pools = tmp_path / "pools.yaml"
    pools.write_text("pools:\n  cpu: {executor: local, slots: 2}\n")
    where = {"HARNESS_ENVS": str(tmp_path / "envs"), "HARNESS_POOLS": str(pools)}
    done = harness("run", "sglang/dcp_units", "--target", "sglang", reports=tmp_path / "reports", **where)
    assert done.code == 3, done.told
    assert done.out.splitlines()[-4].startswith("nothing ran: 1 not run")
    assert "make sglang VERSION=" in done.out
    auto = harness("run", "sglang/dcp_units", reports=tmp_path / "reports", **where)
    assert auto.code == 3, auto.told
    assert "make sglang VERSION=" in auto.out
    assert "harness run sglang/dcp_units --source PATH" in auto.out


def test_a_suite_without_the_target_is_not_run_and_a_fault_reaches_it_not(tmp_path: Path) -> None:
    asked = ("dcp/parity_dcp2", "--target", "sglang")
    done = harness("run", *asked, reports=tmp_path / "reports")
    assert done.code == 3, done.told
    assert "the suite has no target sglang (it has reference)" in done.out
    refused = harness("run", *asked, "--fault", "lse-base", reports=tmp_path / "reports")
    assert_usage_error(refused, "nothing to act on", "the suite has no target sglang")


def test_the_harness_that_runs_is_the_one_that_jobs_import() -> None:
    assert (CHECKOUT / "harness" / "pytest_plugin" / "__init__.py").is_file()
