"""The scheduler: how many tokens it counts, admits and checks."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

from harness.reads.bare import StandIn, bare, times
from harness.reads.registry import Kind, Role, consumer
from harness.reads.stage import Stage
from harness.topology import InjectedWorker

_SCHEDULER = "sglang.srt.managers.scheduler:Scheduler"
_CHECKER = "sglang.srt.managers.scheduler_components.invariant_checker:SchedulerInvariantChecker"

# Tokens of one rank's pool, a prime: what comes out is a multiple of it only where it was multiplied.
_POOL = 1009
# Of a request of one token in pages of one: its own page, the page that it grows into, and one token more.
_RESERVED = 3
# Five cached tokens in pages of four: rounding up to whole pages makes eight of them.
_PAGE = 4
_CACHED = 5
_ROUNDED = 8


@consumer(
    "scheduler.pool_stats",
    kind=Kind.SCALE,
    roles=(Role.TARGET,),
    drives=f"{_SCHEDULER}.init_pool_stats_observer",
)
def pool_stats(worker: InjectedWorker, role: Role, stage: Stage) -> int:
    """How many ranks' tokens the usage statistics count as one pool."""
    from sglang.srt.managers import scheduler

    observer = StandIn(name="SchedulerPoolStatsObserver")
    stage.patch(scheduler, "SchedulerPoolStatsObserver", observer)
    scheduler.Scheduler.init_pool_stats_observer(_scheduler(stage))
    return times(observer.call_args.kwargs["max_total_num_tokens"], _POOL)


@consumer(
    "scheduler.max_new_tokens",
    kind=Kind.SCALE,
    roles=(Role.TARGET,),
    drives=f"{_SCHEDULER}.init_req_max_new_tokens",
)
def max_new_tokens(worker: InjectedWorker, role: Role, stage: Stage) -> int:
    """A request that asks for more than fits: over how many ranks' pools its answer is capped."""
    from sglang.srt.managers.scheduler import Scheduler

    sampling = SimpleNamespace(max_new_tokens=_POOL * _POOL, min_new_tokens=0)
    request = StandIn(name="request", origin_input_ids=[1], sampling_params=sampling)
    Scheduler.init_req_max_new_tokens(_scheduler(stage), request)
    return times(sampling.max_new_tokens + _RESERVED, _POOL)


@consumer(
    "scheduler.invariant_checker_arguments",
    kind=Kind.FACT,
    roles=(Role.TARGET,),
    drives=f"{_SCHEDULER}.init_invariant_checker",
)
def invariant_checker_arguments(worker: InjectedWorker, role: Role, stage: Stage) -> str:
    """Whether the scheduler hands its launch arguments to the invariant checker."""
    from sglang.srt.managers import scheduler

    checker = StandIn(name="SchedulerInvariantChecker")
    stage.patch(scheduler, "SchedulerInvariantChecker", checker)
    scheduler.Scheduler.init_invariant_checker(_scheduler(stage))
    return _given("server_args" in checker.call_args.kwargs)


@consumer("invariant_checker.fields", kind=Kind.FACT, roles=(Role.TARGET,), drives=_CHECKER)
def invariant_checker_fields(worker: InjectedWorker, role: Role, stage: Stage) -> str:
    """Whether the invariant checker holds launch arguments."""
    from sglang.srt.managers.scheduler_components.invariant_checker import SchedulerInvariantChecker

    names = [field.name for field in dataclasses.fields(SchedulerInvariantChecker)]
    return _given("server_args" in names)


@consumer(
    "invariant_checker.rounding", kind=Kind.GATE, roles=(Role.TARGET,), drives=f"{_CHECKER}._check_full_pool"
)
def rounding(worker: InjectedWorker, role: Role, stage: Stage) -> bool:
    """Under DCP cached tokens are rounded up to whole pages before they are counted."""
    count = StandIn(name="_check_pool_invariant", return_value=(False, ""))
    _check_full_pool(stage, count)
    return {_CACHED: False, _ROUNDED: True}[count.call_args.args[2]]


@consumer(
    "invariant_checker.slack", kind=Kind.GATE, roles=(Role.TARGET,), drives=f"{_CHECKER}._check_full_pool"
)
def slack(worker: InjectedWorker, role: Role, stage: Stage) -> bool:
    """Under DCP a count that does not add up is forgiven."""
    leak, _ = _check_full_pool(stage, StandIn(name="_check_pool_invariant", return_value=(True, "")))
    return not leak


def _check_full_pool(stage: Stage, count: StandIn) -> tuple[bool, str]:
    """Check a pool whose counts go to `count`, which says whether they add up."""
    from sglang.srt.managers.scheduler_components.invariant_checker import SchedulerInvariantChecker

    class Checker(SchedulerInvariantChecker):  # type: ignore[misc]
        """Has launch arguments in every release, for a check that goes back to reading them."""

    stage.patch(SchedulerInvariantChecker, "_check_pool_invariant", count)
    checker = bare(
        Checker,
        server_args=stage.server_args,
        is_hybrid_swa=False,
        is_hybrid_ssm=False,
        max_total_num_tokens=_POOL,
        token_to_kv_pool_allocator=SimpleNamespace(page_size=_PAGE),
        tree_cache=StandIn(name="tree_cache"),
        pool_stats_observer=StandIn(name="pool_stats_observer"),
    )
    stats = SimpleNamespace(full_evictable_size=_CACHED, full_available_size=0)
    answer: tuple[bool, str] = checker._check_full_pool(stats)
    return answer


def _given(present: bool) -> str:
    return "server_args" if present else "no server_args"


def _scheduler(stage: Stage) -> Any:
    """A scheduler without its constructor: the real class, so that what it falls back to is its own."""
    from sglang.srt.managers.scheduler import Scheduler

    given = {"ps": stage.ps, "server_args": stage.server_args, "max_total_num_tokens": _POOL, "page_size": 1}
    caps = {
        "max_req_len": _POOL * _POOL,
        "max_new_tokens_limit": None,
        "token_to_kv_pool_allocator": _allocator(),
    }
    return bare(type("BareScheduler", (_WithRest, Scheduler), {}), **given, **caps)


class _WithRest:
    """Has every other attribute as well, since none of them is a number of ranks; arithmetic on one raises."""

    def __getattr__(self, name: str) -> Any:
        return StandIn(name=name)


def _allocator() -> Any:
    """0.5.23 asks the allocator for the cap: its base class answers, over pages of one token."""
    from sglang.srt.mem_cache.allocator import BaseTokenToKVPoolAllocator

    allocator: Any = type("BareAllocator", (BaseTokenToKVPoolAllocator,), {})
    allocator.__abstractmethods__ = frozenset()  # only what a pool adds is, and none of it is called
    return bare(allocator, page_size=1)
