"""The layout suite judges the real package: green as it is, red as soon as one function of it is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sglang_process import ask, run_python

from harness.environments import Environment

VERSIONS = ["0.5.18", "0.5.23"]
MUTATED = Path(__file__).with_name("mutated_layout.py")
COMMON = [
    "lengths_round_up",
    "lengths_ignore_the_start",
    "owner_divides",
    "chunk_without_phase",
    "page_not_widened",
    "capacity_of_one_rank",
    "kv_heads_by_tp",
    "kv_heads_turn_about",
    "cap_of_one_token_more",
]


@pytest.fixture(scope="session")
def seen_in(sglang_environment: Callable[[str], Environment]) -> Callable[[str], dict[str, Any]]:
    """What each mutation did to that release; it is imported once for all of them."""

    @cache
    def run(version: str) -> dict[str, Any]:
        done = run_python(sglang_environment(version), str(MUTATED))
        assert "\nSEEN " in done.stdout, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return dict(json.loads(done.stdout.rpartition("\nSEEN ")[2]))

    return run


@pytest.fixture(params=VERSIONS)
def seen(request: pytest.FixtureRequest, seen_in: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    return seen_in(request.param)


def test_the_package_passes_as_it_is(seen: dict[str, Any]) -> None:
    assert seen["none"]["failed"] == []
    assert seen["none"]["exit"] == 0
    assert seen["none"]["passed"] > 100


@pytest.mark.parametrize("mutation", COMMON)
def test_a_wrong_function_turns_the_suite_red(seen: dict[str, Any], mutation: str) -> None:
    assert seen[mutation]["exit"] == 1, seen[mutation]
    assert seen[mutation]["failed"]


@pytest.mark.parametrize("mutation", ["strided_groups", "strided_ranks"])
def test_strided_look_alikes_turn_it_red_where_they_differ(seen: dict[str, Any], mutation: str) -> None:
    """A group that is its whole TP group, or one rank, looks the same either way."""
    failed = [name for name in seen[mutation]["failed"] if name.startswith("test_groups_are_filled")]
    sizes = {tuple(map(int, re.findall(r"\d+", name)[:2])) for name in failed}
    assert sizes == {(4, 2), (8, 2), (8, 4)}


def test_padding_that_is_taken_for_a_slot_turns_it_red(seen_in: Callable[[str], dict[str, Any]]) -> None:
    """In the releases that have the function."""
    assert seen_in("0.5.23")["padding_is_owned"]["failed"]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_table_of_functions_is_held_both_ways(
    sglang_environment: Callable[[str], Environment], version: str
) -> None:
    answer = ask(
        sglang_environment(version),
        """
        import sys
        sys.path.insert(0, "suites/dcp")
        from test_layout_functions import problems
        from harness.topology.targets.layout import layout_target
        target = layout_target("sglang")
        full = target.functions
        answer = {"as it is": problems(target, full), "unasked": problems(target, full - {"capacity"})}
        target.functions = full - {"rows of a chunk"}
        answer["lost"] = problems(target, target.functions)
        target.functions = full | {"bytes of a row"}
        answer["gained"] = problems(target, target.functions)
        target.functions, target.name = full, "sglang 9.9.9"
        answer["unknown"] = problems(target, full)
        """,
    )
    assert answer == {
        "as it is": [],
        "unasked": ["no test asks for: capacity"],
        "lost": ["the table says there is one for: rows of a chunk"],
        "gained": ["the table says there is none for: bytes of a row"],
        "unknown": ["_layout_functions.yaml has no row 'sglang 9.9.9'"],
    }
