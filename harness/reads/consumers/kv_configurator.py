"""The KV cache configurator: how far a draft's locations reach, which allocator is chosen, how large it is.

A draft shares the target's allocator, so only a target builds one.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from harness.reads.bare import Call, Recorder, bare, times
from harness.reads.registry import Kind, Role, consumer
from harness.reads.stage import Stage
from harness.topology import InjectedWorker

_CLASS = "sglang.srt.mem_cache.kv_cache_configurator:KVCacheConfigurator"
_BUILD = f"{_CLASS}._build_token_to_kv_pool_allocator"

# Primes, so that what comes out is a multiple of them only where they were multiplied.
_ROWS = 1009
_PAGE_SIZE = 5


@consumer("kv_configurator.loc_scale", kind=Kind.SCALE, drives=f"{_CLASS}.loc_space_scale")
def loc_scale(worker: InjectedWorker, role: Role, stage: Stage) -> int:
    """How many locations of the shared allocator one row of this worker's pool stands for."""
    scale: int = bare_configurator(stage).loc_space_scale
    return scale


@consumer("kv_configurator.allocator_choice", kind=Kind.GATE, drives=_BUILD, roles=(Role.TARGET,))
def allocator_choice(worker: InjectedWorker, role: Role, stage: Stage) -> bool:
    """Whether pages of one token still get the paged allocator."""
    paged, _ = _allocator(stage, page_size=1)
    return paged


@consumer("kv_configurator.capacity", kind=Kind.SCALE, drives=_BUILD, roles=(Role.TARGET,))
def capacity(worker: InjectedWorker, role: Role, stage: Stage) -> int:
    """How many times its own rows an allocator deals out."""
    return times(_paged_allocator(stage).args[0], _ROWS)


@consumer("kv_configurator.page_widening", kind=Kind.SCALE, drives=_BUILD, roles=(Role.TARGET,))
def page_widening(worker: InjectedWorker, role: Role, stage: Stage) -> int:
    """How many times the configured page a page of the allocator is."""
    return times(_paged_allocator(stage).named["page_size"], _PAGE_SIZE)


def bare_configurator(stage: Stage) -> Any:
    """A configurator of a plain model: no sliding window, no sharded pages."""
    from sglang.srt.mem_cache.kv_cache_configurator import KVCacheConfigurator

    return bare(
        KVCacheConfigurator,
        server_args=stage.server_args,
        ps=stage.ps,
        is_draft_worker=stage.role is Role.DRAFT,
        is_hybrid_swa=False,
        hybrid_gdn_config=None,
        kv_shard_size=1,
        kv_cache_dtype=None,
        device="cpu",
    )


def _paged_allocator(stage: Stage) -> Call:
    _, made = _allocator(stage, page_size=_PAGE_SIZE)
    return made


def _allocator(stage: Stage, *, page_size: int) -> tuple[bool, Call]:
    """Whether the allocator made for pages of this size is the paged one, and how it was made."""
    from sglang.srt.mem_cache import kv_cache_configurator

    paged, plain = Recorder(), Recorder()
    stage.patch(kv_cache_configurator, "PagedTokenToKVPoolAllocator", paged)
    stage.patch(kv_cache_configurator, "TokenToKVPoolAllocator", plain)
    stage.patch(kv_cache_configurator, "get_schedule", lambda: SimpleNamespace(page_size=page_size))
    bare_configurator(stage)._build_token_to_kv_pool_allocator(
        sizes=SimpleNamespace(max_total_num_tokens=_ROWS),
        token_to_kv_pool=None,
        is_dsv4_model=False,
        req_to_token_pool=None,
        token_to_kv_pool_allocator=None,
    )
    (made,) = paged.calls + plain.calls
    return bool(paged.calls), made
