"""Tests that say which functions of a step target they need, in a run whose target lacks some."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.topology.targets import plugin

pytest_plugins = ["pytester"]

CHECKOUT = Path(__file__).resolve().parents[2]
OPTIONS = ["-p", "harness.topology.targets.plugin", "-p", "no:cacheprovider", "--strict-markers"]


class PoorTarget:
    name = "poor 1.0"
    functions = frozenset({"lengths of a step"})


def test_each_kind_of_target_deselects_its_own_tests(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Layout tests beside them keep the target of their kind."""
    monkeypatch.setattr(plugin, "make_step_target", lambda name: PoorTarget())
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.step_functions("lengths of a step")
        def test_has(step_target): assert step_target.name == "poor 1.0"

        @pytest.mark.step_functions("lengths that query tokens see")
        def test_lacks(step_target): raise AssertionError

        @pytest.mark.layout_functions("capacity")
        def test_layout(layout_target): assert layout_target.name == "reference"

        def test_unmarked(checked_step_functions, checked_functions):
            assert checked_step_functions == {"lengths of a step"}
            assert checked_functions == {"capacity"}
        """
    )
    pytester.runpytest(*OPTIONS).assert_outcomes(passed=3, deselected=1)


def test_an_unknown_function_ends_the_collection(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.step_functions("capacity")
        def test_it(): pass
        """
    )
    result = pytester.runpytest(*OPTIONS)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*test_it: mark step_functions: there is no function 'capacity'"])


def test_the_suite_holds_the_references_table(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It passes for the reference, and fails for a target that has lost a function."""
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    suite = str(CHECKOUT / "suites" / "dcp" / "mla_metadata.yaml")
    plugins = ["-p", "no:harness", "-p", "harness.pytest_plugin", "-p", "no:cacheprovider"]
    result = pytester.runpytest_subprocess(suite, *plugins, "-k", "test_functions")
    assert result.parseoutcomes()["passed"] == 1
    pytester.makepyfile(
        poorer="""
        from harness.topology.targets.reference_step import ReferenceStep

        ReferenceStep.functions = frozenset(ReferenceStep.functions - {"lengths of a step"})
        """
    )
    monkeypatch.setenv("PYTHONPATH", f"{CHECKOUT}:{pytester.path}")
    poorer = pytester.runpytest_subprocess(suite, "-p", "poorer", *plugins, "-k", "test_functions")
    assert poorer.parseoutcomes()["failed"] == 1
    poorer.stdout.fnmatch_lines(["*the table says there is one for: lengths of a step*"])
