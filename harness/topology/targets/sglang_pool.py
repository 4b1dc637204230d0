"""The package's allocator and admission rule, called inside `inject(target="sglang")`.

The allocator is the one that the package's own KV configurator makes for the injected topology, over a pool that
is never touched. Stand-ins carry what the driven functions read and nothing else: a function that asks for more ends
in an AttributeError, which is an error of the test and never a finding.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from harness.topology.layout import KVLayout
from harness.topology.targets.frames import CONTEXT_MODULE

_CONFIGURATOR_MODULE = "sglang.srt.mem_cache.kv_cache_configurator"
_SCHEDULER_MODULE = "sglang.srt.managers.scheduler"

# Longer than any sequence of the suite: the other bound of a request is not what is asked for.
_NO_LENGTH_LIMIT = 1 << 40


@dataclass(frozen=True, slots=True)
class Drawn:
    """What one sequence took from an allocator."""

    slots: list[int]
    pages: int


def build_allocator(layout: KVLayout, rows_per_rank: int) -> Any:
    """As the configurator of a target worker builds it."""
    torch = importlib.import_module("torch")
    context = importlib.import_module(CONTEXT_MODULE)
    context.get_context().override("harness", page_size=layout.page_size)
    configurator = SimpleNamespace(
        server_args=context.get_server_args(),
        hybrid_gdn_config=None,
        is_hybrid_swa=False,
        kv_cache_dtype=torch.bfloat16,
        device="cpu",
        is_draft_worker=False,
        kv_shard_size=1,
    )
    sizes = SimpleNamespace(
        max_total_num_tokens=rows_per_rank, full_max_total_num_tokens=None, swa_max_total_num_tokens=None
    )
    return importlib.import_module(
        _CONFIGURATOR_MODULE
    ).KVCacheConfigurator._build_token_to_kv_pool_allocator(
        configurator,
        sizes=sizes,
        token_to_kv_pool=object(),
        is_dsv4_model=False,
        req_to_token_pool=object(),
        token_to_kv_pool_allocator=None,
    )


def drawn(layout: KVLayout, pages: Sequence[int], length: int) -> Drawn:
    """Let a sequence grow to `length` in three steps, with these pages free, in this order."""
    torch = importlib.import_module("torch")
    allocator = build_allocator(layout, max(pages) * layout.page_size)
    allocator.free_pages = torch.tensor(list(pages), dtype=torch.int64)
    slots: list[int] = []
    for grown in sorted({length // 3, length // 2, length}):
        if grown > len(slots):
            slots += _extend(allocator, slots, grown)
    return Drawn(slots, len(pages) - len(allocator.free_pages))


def _extend(allocator: Any, held: list[int], grown: int) -> list[int]:
    """The slots of positions `len(held)..grown-1`."""
    torch = importlib.import_module("torch")
    more = grown - len(held)
    if allocator.page_size == 1:  # the package's rule as well
        return [int(slot) for slot in allocator.alloc(more).tolist()]
    _require_pages(allocator, len(held), grown)
    prefix, whole, last = (
        torch.tensor([n], dtype=torch.int64) for n in (len(held), grown, (held or [-1])[-1])
    )
    return [int(slot) for slot in allocator.alloc_extend(prefix, prefix, whole, whole, last, more).tolist()]


def _require_pages(allocator: Any, held: int, grown: int) -> None:
    """An allocator with the wrong page would read past its list, which ends the process and not the test."""
    needed = -(-grown // allocator.page_size) - -(-held // allocator.page_size)
    if needed > len(allocator.free_pages):
        raise AssertionError(
            f"tokens {held}..{grown - 1} take {needed} pages of {allocator.page_size} tokens, but"
            f" {len(allocator.free_pages)} are free: the allocator's page is not the widened one"
        )


def admitted(layout: KVLayout, *, input_len: int, asked: int, rows_per_rank: int) -> int:
    """New tokens that the scheduler leaves a request."""
    allocator = build_allocator(layout, rows_per_rank)
    scheduler = SimpleNamespace(
        server_args=importlib.import_module(CONTEXT_MODULE).get_server_args(),
        max_new_tokens_limit=None,
        page_size=_scheduler_page(),
        max_req_len=_NO_LENGTH_LIMIT,
        max_total_num_tokens=_scheduler_tokens(rows_per_rank),
        # newer releases leave the arithmetic to the allocator
        kv_shard_widening=1,
        token_to_kv_pool_allocator=allocator,
        sliding_window_size=None,
        chunked_prefill_size=None,
    )
    sampling = SimpleNamespace(max_new_tokens=asked, min_new_tokens=0)
    request = SimpleNamespace(rid="r", origin_input_ids=range(input_len), sampling_params=sampling)
    importlib.import_module(_SCHEDULER_MODULE).Scheduler.init_req_max_new_tokens(scheduler, request)
    return int(sampling.max_new_tokens)


def admission_page(layout: KVLayout) -> int:
    """Tokens of a page in that arithmetic."""
    allocator = build_allocator(layout, layout.page_size)
    by_allocator = hasattr(allocator, "max_new_tokens_for_memory")
    return int(allocator.page_size) if by_allocator else _scheduler_page()


def _scheduler_page() -> int:
    """A scheduler copies the published page size."""
    return int(importlib.import_module(CONTEXT_MODULE).get_schedule().page_size)


def _scheduler_tokens(rows_per_rank: int) -> int:
    """What a scheduler is told of the pool: the rows of a rank, in newer releases the tokens of the group."""
    configurator = importlib.import_module(_CONFIGURATOR_MODULE).KVCacheConfigurator
    if not hasattr(configurator, "logical_token_capacity"):
        return rows_per_rank
    target_worker = SimpleNamespace(is_hybrid_swa=False, loc_space_scale=1)
    return int(configurator.logical_token_capacity(target_worker, max_total_num_tokens=rows_per_rank))
