"""Suite `dcp/mla_metadata` judges the real package: green as it is, red where its test should see what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sglang_process import run_python

from harness.environments import Environment

VERSIONS = ["0.5.18", "0.5.23"]
MUTATED = Path(__file__).with_name("mutated_step.py")
DEALT = "test_lengths_are_as_dealt"
PAGED = "test_a_replays_page_table_is_made_for_local_lengths"
BOUND = "test_a_rank_without_a_token_is_given_a_bound_above_zero"
VERIFY = "test_verify_lengths_are_written_over_in_place"
# What sees each, in every release; a release may have more tests that do.
SEEN_BY = {
    "local_rounds_up": {DEALT, PAGED, VERIFY},
    "local_is_global": {DEALT, PAGED, VERIFY, "test_all_ranks_together_hold_every_token_once"},
    "local_of_the_first_rank": {DEALT, PAGED, VERIFY},
    "bound_may_be_zero": {BOUND},
    "draft_is_added_twice": {PAGED, VERIFY},
    "draft_is_forgotten": {PAGED, VERIFY},
    "buffers_are_replaced": {VERIFY},
    "padding_keeps_what_was_there": {VERIFY},
}


@pytest.fixture(scope="session")
def seen_in(sglang_environment: Callable[[str], Environment]) -> Callable[[str], dict[str, Any]]:
    """What each mutation did to that release; it is imported once for all of them."""

    @cache
    def run(version: str) -> dict[str, Any]:
        done = run_python(sglang_environment(version), str(MUTATED))
        assert "\nSEEN " in done.stdout, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return dict(json.loads(done.stdout.rpartition("\nSEEN ")[2]))

    return run


@pytest.mark.parametrize("version", VERSIONS)
def test_the_package_passes_as_it_is(seen_in: Callable[[str], dict[str, Any]], version: str) -> None:
    assert seen_in(version)["none"]["failed"] == []
    assert seen_in(version)["none"]["passed"] > 70


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mutation", SEEN_BY)
def test_a_wrong_length_is_seen_where_it_should_be(
    seen_in: Callable[[str], dict[str, Any]], version: str, mutation: str
) -> None:
    found = seen_in(version)[mutation]
    assert found["exit"] == 1
    assert SEEN_BY[mutation] <= set(found["failed"])


def test_decode_buffers_are_seen_where_a_release_keeps_them(
    seen_in: Callable[[str], dict[str, Any]],
) -> None:
    decode = "test_decode_lengths_are_written_over_in_place"
    assert decode in seen_in("0.5.23")["buffers_are_replaced"]["failed"]
    assert decode not in seen_in("0.5.18")["local_is_global"]["failed"]
