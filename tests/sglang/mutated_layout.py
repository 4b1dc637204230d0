"""Run in an SGLang environment: breaks one function of the package after the other and runs the layout suite.

Prints, per mutation, which tests failed. Each replaces a function from outside and is undone before the next; the
first, `none`, breaks nothing.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ["TRITON_INTERPRET"] = "1"  # before the package compiles a kernel

import pytest
import sglang.srt.configs.model_config as model_config
import sglang.srt.distributed.parallel_state as parallel_state
import sglang.srt.layers.dcp.layout as layout
import sglang.srt.layers.linear as linear
import sglang.srt.managers.scheduler as scheduler
import sglang.srt.mem_cache.kv_cache_configurator as configurator
import sglang.srt.models.qwen3_5 as model
import sglang.srt.runtime_context as context

SUITE = Path(__file__).resolve().parents[2] / "suites" / "dcp" / "layout_unit.yaml"
PUBLISHED = hasattr(context, "SpawnRanks")

Patches = list[tuple[object, str, object]]


def strided_groups() -> Patches:
    """DCP groups take every n-th rank of their TP group."""
    real = parallel_state.init_model_parallel_group
    tp: list[list[int]] = []

    def init(group_ranks: list[list[int]], *args: Any, group_name: str, **named: Any) -> object:
        if group_name == "tp":
            tp[:] = group_ranks
        if group_name == "dcp":
            step = len(tp[0]) // len(group_ranks[0])
            group_ranks = [ranks[first::step] for ranks in tp for first in range(step)]
        return real(group_ranks, *args, group_name=group_name, **named)

    return [(parallel_state, "init_model_parallel_group", init)]


def strided_ranks() -> Patches:
    """The groups are right, and each rank takes the seat that it would have in a strided one."""
    if not PUBLISHED:

        def get_dcp_rank() -> int:
            tp, dcp = parallel_state._TP, parallel_state._DCP
            return tp.rank_in_group // (tp.world_size // dcp.world_size)

        return [(parallel_state, "get_dcp_rank", get_dcp_rank)]
    real = context.ParallelContext.override_permanently

    def stamp(self: Any, **values: Any) -> None:
        if "dcp_rank" in values:
            seat = values["tp_rank"] // (self.tp_size // self.dcp_size)
            values |= {"dcp_rank": seat, "attn_dcp_rank": seat}
        real(self, **values)

    return [(context.ParallelContext, "override_permanently", stamp)]


def lengths_round_up() -> Patches:
    real = layout.get_dcp_lens

    def lens(lens: Any, dcp_size: int, dcp_rank: int, start: Any = None, **named: Any) -> Any:
        if start is None and not named:
            return -(-lens // dcp_size)
        return real(lens, dcp_size, dcp_rank, start, **named)

    return [(layout, "get_dcp_lens", lens)]


def lengths_ignore_the_start() -> Patches:
    real = layout.get_dcp_lens

    def lens(lens: Any, dcp_size: int, dcp_rank: int, start: Any = None, **named: Any) -> Any:
        return real(lens, dcp_size, dcp_rank, **named)

    return [(layout, "get_dcp_lens", lens)]


def owner_divides() -> Patches:
    """Neighbouring slots go to one rank."""
    real = layout.filter_dcp_local_kv_indices

    def mine(slots: Any) -> Any:
        parallel = context.get_parallel()
        if not parallel.dcp_enabled:
            return real(slots)
        size = parallel.dcp_size
        kept = slots[slots // size % size == parallel.dcp_rank]
        return kept if PUBLISHED else kept // size

    return [(layout, "filter_dcp_local_kv_indices", mine)]


def chunk_without_phase() -> Patches:
    real = layout.filter_dcp_local_chunk_kv_indices
    return [
        (
            layout,
            "filter_dcp_local_chunk_kv_indices",
            lambda slots, starts, ends: real(slots, starts * 0, ends),
        )
    ]


def page_not_widened() -> Patches:
    real = configurator.PagedTokenToKVPoolAllocator

    def narrow(size: int, *, page_size: int, **named: Any) -> object:
        return real(size, page_size=page_size // context.get_parallel().attn_dcp_size, **named)

    return [(configurator, "PagedTokenToKVPoolAllocator", narrow)]


def capacity_of_one_rank() -> Patches:
    real = configurator.PagedTokenToKVPoolAllocator

    def small(size: int, **named: Any) -> object:
        return real(size // context.get_parallel().attn_dcp_size, **named)

    return [(configurator, "PagedTokenToKVPoolAllocator", small)]


def kv_heads_by_tp() -> Patches:
    real = model_config.ModelConfig.get_num_kv_heads
    return [(model_config.ModelConfig, "get_num_kv_heads", lambda self, tp, dcp_size=1: real(self, tp))]


def kv_heads_turn_about() -> Patches:
    """Ranks of one group load heads of different groups."""
    if PUBLISHED:
        seat = property(lambda self: self.group.rank_in_group % self.world_size)
        return [(linear._ReplicatedGroup, "rank_in_group", seat)]
    real = model.QKVParallelLinear

    def projection(*args: Any, tp_rank: int, kv_tp_rank: int, kv_tp_size: int, **named: Any) -> object:
        return real(*args, tp_rank=tp_rank, kv_tp_rank=tp_rank % kv_tp_size, kv_tp_size=kv_tp_size, **named)

    return [(model, "QKVParallelLinear", projection)]


def cap_of_one_token_more() -> Patches:
    real = scheduler.Scheduler.init_req_max_new_tokens

    def init(self: Any, request: Any) -> None:
        self.max_total_num_tokens += 1
        real(self, request)

    return [(scheduler.Scheduler, "init_req_max_new_tokens", init)]


def padding_is_owned() -> Patches:
    """-1 counts as a slot."""
    real = layout.localize_dcp_indices

    def localize(slots: Any, *args: Any, **named: Any) -> Any:
        return real(slots.abs(), *args, **named)

    return [(layout, "localize_dcp_indices", localize)]


# mutation -> the tests that are run under it, as for `-k`
MUTATIONS: dict[Callable[[], Patches], str] = {
    strided_groups: "filled_in_rank_order or look_alikes",
    strided_ranks: "filled_in_rank_order or every_tp_group",
    lengths_round_up: "lengths",
    lengths_ignore_the_start: "lengths_are_as_dealt",
    owner_divides: "finds_its_rows_in_order or full_pool",
    chunk_without_phase: "rows_of_chunks",
    page_not_widened: "slots_are_as_numbered or page_counts",
    capacity_of_one_rank: "capacity_is",
    kv_heads_by_tp: "(kv_heads_that and 4-2)",
    kv_heads_turn_about: "(kv_heads_that and 4-2)",
    cap_of_one_token_more: "(is_capped and 16)",
}
ONLY_PUBLISHED: dict[Callable[[], Patches], str] = {padding_is_owned: "others_are_marked"}


class Results:
    """What failed in one run."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.passed = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid.rpartition("::")[2])
        elif report.when == "call":
            self.passed += report.passed


def run(keyword: str) -> dict[str, Any]:
    results = Results()
    # By module and never by entry point: an editable install leaves one in the checkout, which is on the path here.
    plugins = ["-p", "no:harness", "-p", "harness.pytest_plugin", "-p", "no:cacheprovider"]
    options = ["-q", "--no-header", "--tb=no", *plugins, "--harness-target", "sglang"]
    code = pytest.main([str(SUITE), *options, "-k", keyword], plugins=[results])
    return {"exit": int(code), "failed": results.failed, "passed": results.passed}


@contextmanager
def broken(patches: Patches) -> Iterator[None]:
    with ExitStack() as stack:
        for owner, name, value in patches:
            stack.enter_context(patch.object(owner, name, value))
        yield


def main() -> None:
    mutations = MUTATIONS | (ONLY_PUBLISHED if PUBLISHED else {})
    seen = {"none": run(" or ".join([*mutations.values(), "test_functions"]))}
    for mutation, keyword in mutations.items():
        with broken(mutation()):
            seen[mutation.__name__] = run(keyword)
    sys.stdout.flush()
    print(f"\nSEEN {json.dumps(seen)}", flush=True)


if __name__ == "__main__":
    main()
