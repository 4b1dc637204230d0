"""A mark of a suite's tests that nobody registered: such a test would run once, as no rank, and be green."""

from __future__ import annotations

import json

import pytest
from runs import World

SUITE = """
summary: tests of every rank
profiles:
  cpu:
    needs: {{cpu: {slots}}}
    estimate: 5s
    timeout: 2m
tests: [test_ranks.py]
"""

TESTS = """
import pytest

@pytest.mark.{mark}(tp=4, dcp=2)
def test_a_rank():
    assert True
"""


@pytest.mark.parametrize("slots", [1, 2])
def test_a_misspelt_mark_in_a_suite_is_red(world: World, slots: int) -> None:
    world.suite("ranks")
    (world.folder / "suites" / "ranks.yaml").write_text(SUITE.format(slots=slots))
    tests = world.folder / "suites" / "test_ranks.py"
    tests.write_text(TESTS.format(mark="topolgy"))
    code, out, err = world.run("run", "ranks")
    assert code == 1, out + err
    assert "'topolgy' not found in `markers`" in json.dumps(world.shown())
    tests.write_text(TESTS.format(mark="topology"))
    code, out, err = world.run("run", "ranks")
    assert code == 0, out + err
