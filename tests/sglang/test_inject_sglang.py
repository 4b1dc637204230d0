"""`inject(target="sglang")` in each release: the three sources apart, one rank a process, and nothing left behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sglang_process import ask, run_python

from harness.environments import Environment

LIVE, PUBLISHED = ["0.5.17", "0.5.18"], ["0.5.23"]
OBSERVE = Path(__file__).with_name("observe_inject.py")


@pytest.fixture(scope="session", params=LIVE + PUBLISHED)
def seen(request: pytest.FixtureRequest, sglang_environment: Callable[[str], Environment]) -> dict[str, Any]:
    """What one process of that release saw; each test looks at one part of it."""
    done = run_python(sglang_environment(request.param), str(OBSERVE))
    assert "\nSEEN " in done.stdout, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return {"version": request.param, **json.loads(done.stdout.rpartition("\nSEEN ")[2])}


@pytest.fixture
def version(seen: dict[str, Any]) -> str:
    return str(seen["version"])


def test_release_and_generation_are_found(seen: dict[str, Any], version: str) -> None:
    assert seen["target"] == [f"sglang {version}", "live" if version in LIVE else "published"]


def test_each_source_answers_its_own_number(seen: dict[str, Any], version: str) -> None:
    """All six ways to deal 8, 4 and 2 to seed, ps and live; rank 5 of 8 has DCP rank 5 % size."""
    assert len(seen["sources_apart"]) == 6
    for case in seen["sources_apart"]:
        seed, ps, live = case["given"]
        assert case["found"] == [seed, ps if version in LIVE else None, live]
        rank = {2: 1, 4: 1, 8: 5}[live]
        assert case["live"] == [True, live, rank, live, rank]


def test_every_axis_is_answered_for_every_rank(seen: dict[str, Any]) -> None:
    assert seen["every_axis"] == []


def test_dcp_off_is_the_packages_own_off(seen: dict[str, Any], version: str) -> None:
    """Also inside a block that has it on; loud names raise what the package raises there."""
    loud = "AssertionError" if version in LIVE else "RuntimeError"
    off = {"dcp_enabled": "False", "attn_dcp_size": "1", "attn_dcp_rank": "0"}
    size = {"dcp_size": loud if version in LIVE else "1"}
    assert seen["dcp_off"] == off | size | {"dcp_rank": loud, "dcp_group": loud}


def test_the_group_knows_its_ranks_and_refuses_the_rest(seen: dict[str, Any]) -> None:
    assert seen["group"] == {
        "ranks": [4, 5, 6, 7],
        "rank": 5,
        "rank_in_group": 1,
        "world_size": 4,
        "len": 4,
        "collective": "InjectionError",
        "copies": False,
    }


def test_the_worker_carries_the_packages_own_objects(seen: dict[str, Any], version: str) -> None:
    assert seen["worker"] == {
        "is published": True,
        "is the package's": True,
        "sizes": [8, 2, 2, 4],
        "ps": [5, 1, 0] if version in LIVE else None,
        "harness": [2, 2, 13, True],
        "package": f"sglang {version}",
    }


def test_blocks_nest_and_leave_room_for_the_packages_own_overrides(seen: dict[str, Any]) -> None:
    assert seen["nesting"] == [4, 8, 3, 8, 4, 4]


@pytest.mark.parametrize("around", ["restored", "restored_with_something_published"])
def test_every_way_out_leaves_the_process_as_it_was(seen: dict[str, Any], around: str) -> None:
    ways = {"normal", "raising", "closed_generator", "collected_generator", "closed_out_of_order"}
    assert seen[around] == dict.fromkeys(ways | {"refused", "changed_inside"}, True)


def test_other_threads_are_refused(seen: dict[str, Any]) -> None:
    """However they come by the package's topology, and also with the context copied: one rank a process."""
    refused = {
        "a function imported by name",
        "an object held from before",
        "the module",
        "an override",
        "a second block",
        "the context copied",
    }
    answered = {"its own": "5", "whether it is a context": "True", "afterwards": "'True'"}
    assert seen["threads"] == dict.fromkeys(refused, "InjectionError") | answered


def test_tasks_see_the_block_they_were_started_in(seen: dict[str, Any]) -> None:
    siblings = {"sibling": "InjectionError", "sibling's block": "InjectionError"}
    assert seen["tasks"] == {"own": "5", "child": "5"} | siblings


def test_a_field_that_harness_does_not_know_is_named(
    sglang_environment: Callable[[str], Environment],
) -> None:
    answer = ask(
        sglang_environment("0.5.18"),
        """
        from dataclasses import make_dataclass
        import sglang.srt.distributed.parallel_state_wrapper as wrapper
        from harness.topology import ParallelConfig, inject
        wrapper.ParallelState = make_dataclass("ParallelState", ["tp_rank", "warp_rank"])
        try:
            with inject(ParallelConfig(), target="sglang"):
                answer = "built"
        except Exception as error:
            answer = [type(error).__name__, str(error)]
        """,
    )
    assert answer == [
        "InjectionError",
        "sglang's ParallelState has a field 'warp_rank' that harness does not know",
    ]
