"""`inject()`: every rank answers, blocks nest and are undone on any exit, and no context sees another's."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError, replace

import pytest

from harness.errors import InjectionError, NoGroupError, TopologyError
from harness.topology import ParallelConfig, ParallelState, dcp_groups, get_parallel, group_of, inject

TP8 = ParallelConfig(tp_size=8, dcp_size=4)
TP4 = ParallelConfig(tp_size=4, dcp_size=2)


def place() -> tuple[int, int]:
    """What code under test reads."""
    return get_parallel().attn_dcp_size, get_parallel().attn_dcp_rank


def in_thread(read: Callable[[], object]) -> object:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(read).result()


@pytest.mark.parametrize("config", [TP8, TP4, ParallelConfig(tp_size=2, pp_size=2, dcp_size=2)])
def test_sources_agree_on_every_rank(config: ParallelConfig) -> None:
    for rank in range(config.world_size):
        with inject(config, rank=rank) as worker:
            live = get_parallel()
            group = group_of(dcp_groups(config), rank)
            assert (worker.rank, worker.seed) == (rank, config)
            assert (live.tp_rank, live.pp_rank) == (rank % config.tp_size, rank // config.tp_size)
            assert list(live.dcp_group) == list(live.dcp_group.ranks) == group
            assert live.dcp_group.rank == live.dcp_rank == worker.ps.attn_dcp_rank == group.index(rank)
            assert live.dcp_group.size == len(live.dcp_group) == live.dcp_size == worker.seed.dcp_size
            assert worker.state == worker.ps == live.state
            assert live.dcp_enabled


def test_dcp_off_is_off_inside_too() -> None:
    with inject(ParallelConfig(tp_size=4), rank=3) as worker:
        assert (worker.dcp_enabled, worker.attn_dcp_size, worker.attn_dcp_rank) == (False, 1, 0)
        assert worker.tp_rank == 3
        with pytest.raises(NoGroupError):
            _ = worker.dcp_group


def test_sources_given_apart_stay_apart() -> None:
    ps = ParallelState.from_config(TP8, tp_rank=6)
    live = ParallelState.from_config(replace(TP8, dcp_size=2), tp_rank=7)
    with inject(TP8, rank=3, seed=replace(TP8, dcp_size=8), ps=ps, live=live) as worker:
        assert (worker.seed.dcp_size, worker.ps.attn_dcp_size, worker.attn_dcp_size) == (8, 4, 2)
        assert (worker.ps.attn_dcp_rank, worker.dcp_rank, worker.dcp_group.ranks) == (2, 1, (6, 7))
        assert get_parallel().dcp_size == 2
    staged = ParallelState.from_config(replace(TP8, pp_size=2), tp_rank=5, pp_rank=1)
    with inject(TP8, live=staged) as worker:
        assert (worker.dcp_group.ranks, worker.dcp_group.rank) == ((12, 13, 14, 15), 1)
        assert worker.ps.attn_dcp_rank == 0


def test_a_config_stands_for_the_same_rank_of_its_topology() -> None:
    wide = ParallelConfig(tp_size=4, pp_size=2, dcp_size=2)
    with inject(
        wide, rank=7, ps=ParallelConfig(tp_size=8, dcp_size=4), live=replace(TP8, dcp_size=8)
    ) as worker:
        assert worker.seed == wide
        assert worker.ps == ParallelState.from_config(TP8, tp_rank=7)
        assert worker.state == ParallelState.from_config(replace(TP8, dcp_size=8), tp_rank=7)
        assert get_parallel().dcp_group.ranks == tuple(range(8))


def test_a_source_given_apart_moves_no_other() -> None:
    two = replace(TP8, dcp_size=2)
    own = ParallelState.from_config(TP8, tp_rank=3)
    other = ParallelState.from_config(two, tp_rank=3)
    for apart in ({}, {"seed": two}, {"ps": two}, {"live": two}):
        with inject(TP8, rank=3, **apart) as worker:
            assert worker.seed == (two if "seed" in apart else TP8)
            assert worker.ps == (other if "ps" in apart else own)
            assert worker.state == (other if "live" in apart else own)


@pytest.mark.parametrize("rank", [-1, 8, True, "0"])
def test_a_rank_that_is_not_there_is_refused(rank: int) -> None:
    with pytest.raises(TopologyError, match=r"must be an integer in 0\.\.7"):
        with inject(TP8, rank=rank):
            pytest.fail("the block ran")
    assert place() == (1, 0)


def test_the_group_fakes_no_communication() -> None:
    with inject(TP8) as worker:
        with pytest.raises(InjectionError, match=r"dcp_group\.all_gather: inject\(\) fakes topology"):
            worker.dcp_group.all_gather([1])
        assert copy.deepcopy(worker.dcp_group) == worker.dcp_group
        with pytest.raises(AttributeError, match=r"^__array__$"):
            _ = worker.dcp_group.__array__


def test_the_group_cannot_change() -> None:
    with inject(TP8) as worker:
        with pytest.raises(FrozenInstanceError):
            worker.dcp_group.rank = 1
        assert "__dict__" not in dir(type(worker.dcp_group))


def test_blocks_nest_and_an_outer_view_keeps_its_own_answer() -> None:
    with inject(TP8, rank=7) as outer:
        with inject(TP4, rank=1) as inner:
            assert place() == (2, 1)
            assert (outer.dcp_size, outer.dcp_rank, inner.dcp_size) == (4, 3, 2)
        assert place() == (4, 3)
    assert place() == (1, 0)


def test_a_view_is_stale_after_its_block_and_a_process_view_is_not() -> None:
    before = get_parallel()
    with inject(TP8, rank=5) as worker:
        inside = get_parallel()
        assert before.dcp_rank == inside.dcp_rank == worker.dcp_rank == 1
    assert before.attn_dcp_size == 1
    for view in (inside, worker):
        for name in ("attn_dcp_size", "attn_dcp_rank", "dcp_enabled", "dcp_size", "dcp_group", "tp_rank"):
            with pytest.raises(InjectionError, match="which has ended"):
                getattr(view, name)


def test_an_exception_undoes_the_block() -> None:
    with pytest.raises(ZeroDivisionError), inject(TP8, rank=1):
        _ = 1 // 0
    assert place() == (1, 0)
    assert in_thread(place) == (1, 0)


def worker_reads(config: ParallelConfig, rank: int) -> Iterator[tuple[int, int]]:
    with inject(config, rank=rank):
        while True:
            yield place()


def test_a_closed_generator_undoes_its_block() -> None:
    reads = worker_reads(TP8, 3)
    assert next(reads) == (4, 3)
    reads.close()
    assert place() == (1, 0)
    assert in_thread(place) == (1, 0)


def test_generators_may_close_in_any_order() -> None:
    first, second = worker_reads(TP8, 3), worker_reads(TP4, 1)
    assert (next(first), next(second)) == ((4, 3), (2, 1))
    first.close()
    assert place() == (2, 1)
    second.close()
    assert place() == (1, 0)


def test_a_generator_closed_by_another_thread_undoes_its_block() -> None:
    reads = worker_reads(TP8, 3)
    next(reads)
    in_thread(reads.close)
    assert place() == (1, 0)
    with inject(TP4, rank=1):
        assert place() == (2, 1)


@pytest.mark.parametrize("make_context", [contextvars.Context, contextvars.copy_context])
def test_a_generator_closed_in_another_context_undoes_its_block(make_context: Callable) -> None:
    reads = worker_reads(TP8, 3)
    next(reads)
    make_context().run(reads.close)
    assert place() == (1, 0)
    assert in_thread(place) == (1, 0)


def test_threads_started_after_a_block_inherit_nothing() -> None:
    with inject(TP8, rank=5):
        pass
    copied = contextvars.copy_context()
    assert in_thread(lambda: copied.run(place)) == (1, 0)


def test_threads_started_after_a_block_closed_elsewhere_inherit_nothing() -> None:
    reads = worker_reads(TP8, 3)
    next(reads)
    contextvars.Context().run(reads.close)
    copied = contextvars.copy_context()
    assert in_thread(lambda: copied.run(place)) == (1, 0)


def test_a_thread_without_the_context_raises_instead_of_answering_one() -> None:
    with inject(TP8, rank=5) as worker:
        for read in (place, lambda: worker.attn_dcp_size, get_parallel, lambda: worker.dcp_group):
            with pytest.raises(InjectionError, match="outside the context of inject"):
                in_thread(read)
        assert place() == (4, 1)
    assert in_thread(place) == (1, 0)


def test_a_thread_with_the_context_copied_sees_the_injection() -> None:
    with inject(TP8, rank=5) as worker:
        copied = contextvars.copy_context()
        assert in_thread(lambda: copied.run(place)) == (4, 1)
        copied = contextvars.copy_context()
        assert in_thread(lambda: copied.run(lambda: worker.dcp_rank)) == 1


def test_an_empty_context_in_the_same_thread_raises_too() -> None:
    with inject(TP8, rank=5):
        with pytest.raises(InjectionError):
            contextvars.Context().run(place)


def test_a_thread_that_outlives_the_block_raises() -> None:
    ended = threading.Event()

    def late_read() -> tuple[int, int]:
        assert ended.wait(10)
        return place()

    with ThreadPoolExecutor(1) as pool:
        with inject(TP8, rank=5):
            future = pool.submit(contextvars.copy_context().run, late_read)
        ended.set()
        with pytest.raises(InjectionError, match="ended, by a thread, task or callback started in it"):
            future.result()


def test_threads_are_ranks_of_their_own() -> None:
    together = threading.Barrier(8)

    def as_rank(rank: int) -> tuple[int, int]:
        with inject(TP8, rank=rank):
            together.wait(10)
            found = place()
            together.wait(10)
        return found

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(as_rank, range(8))) == [(4, rank) for rank in (0, 1, 2, 3, 0, 1, 2, 3)]
    assert place() == (1, 0)


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_tasks_are_ranks_of_their_own_and_a_sibling_has_none() -> None:
    async def as_rank(rank: int) -> tuple[int, int]:
        with inject(TP8, rank=rank):
            await turns()
            return place()

    async def bystander() -> list[tuple[int, int]]:
        found = []
        for _ in range(5):
            await turns(1)
            found.append(place())
        return found

    async def main() -> None:
        *ranks, bystanders = await asyncio.gather(*map(as_rank, range(4)), bystander())
        assert ranks == [(4, 0), (4, 1), (4, 2), (4, 3)]
        assert bystanders == [(1, 0)] * 5

    asyncio.run(main())


def test_tasks_inherit_and_to_thread_copies() -> None:
    async def main() -> None:
        with inject(TP8, rank=6):
            assert await asyncio.create_task(read_later()) == (4, 2)
            assert await asyncio.to_thread(place) == (4, 2)
            with pytest.raises(InjectionError):
                await asyncio.get_running_loop().run_in_executor(None, place)
        assert place() == (1, 0)

    async def read_later() -> tuple[int, int]:
        await turns()
        return place()

    asyncio.run(main())


def test_a_cancelled_task_undoes_its_block() -> None:
    async def main() -> None:
        entered = asyncio.Event()

        async def as_rank() -> None:
            with inject(TP8, rank=1):
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(as_rank())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.get_running_loop().run_in_executor(None, place) == (1, 0)

    asyncio.run(main())


def test_a_task_that_outlives_the_block_raises() -> None:
    async def main() -> None:
        ended = asyncio.Event()

        async def late_read() -> tuple[int, int]:
            await ended.wait()
            return place()

        with inject(TP8, rank=1):
            task = asyncio.create_task(late_read())
        ended.set()
        with pytest.raises(InjectionError, match="started in it"):
            await task

    asyncio.run(main())


def test_an_async_generator_finalised_by_another_task_undoes_its_block() -> None:
    async def read_now() -> tuple[int, int]:
        return place()

    async def reads() -> AsyncIterator[tuple[int, int]]:
        with inject(TP8, rank=2):
            while True:
                yield place()

    async def main() -> None:
        generator = reads()
        assert await anext(generator) == (4, 2)
        await asyncio.create_task(generator.aclose())
        assert await asyncio.create_task(read_now()) == (1, 0)
        assert place() == (1, 0)

    asyncio.run(main())


def test_a_sync_block_around_a_loop_is_seen_by_its_tasks() -> None:
    async def main() -> tuple[int, int]:
        await turns()
        return place()

    with inject(TP8, rank=3):
        assert asyncio.run(main()) == (4, 3)
