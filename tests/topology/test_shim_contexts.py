"""Whose injection a read sees: tasks, copied contexts, threads, generators that are collected, deep nestings."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st
from topology_rules import rule

from harness.errors import InjectionError
from harness.topology import ParallelConfig, ParallelState, get_parallel, inject, injections

TP8 = ParallelConfig(tp_size=8, dcp_size=4)
TP4 = ParallelConfig(tp_size=4, dcp_size=2)
# What the messages call rank 5 of TP8.
BLOCK = "inject(rank 5 of tp 8, dcp 4)"
ENDED = f"topology was read after {BLOCK} ended, by a thread, task or callback started in it"
STRANGER = (
    f"topology was read outside the context of {BLOCK}, which is open: start the thread with"
    " contextvars.copy_context().run, or use asyncio.to_thread"
)
OLD_VIEW = f"topology was read through a view of {BLOCK}, which has ended"


def place() -> tuple[int, int]:
    """What code under test reads."""
    return get_parallel().attn_dcp_size, get_parallel().attn_dcp_rank


def in_thread(call: Callable[[], object]) -> object:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(InjectionError) as caught:
        call()
    return str(caught.value)


def told(call: Callable[[], object]) -> object:
    """What it answers, or the words of its refusal: for callbacks, whose exceptions no one gets."""
    try:
        return call()
    except InjectionError as error:
        return str(error)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    assert place() == (1, 0)
    assert in_thread(place) == (1, 0)


def test_each_refusal_has_its_own_words() -> None:
    with inject(TP8, rank=5) as worker:
        copied = contextvars.copy_context()
        assert refusal(lambda: in_thread(place)) == STRANGER
        assert refusal(lambda: in_thread(lambda: worker.dcp_rank)) == STRANGER
    assert refusal(lambda: worker.dcp_rank) == OLD_VIEW
    assert refusal(lambda: in_thread(lambda: copied.run(place))) == ENDED


def test_a_context_kept_past_the_block_raises_in_its_own_thread_too() -> None:
    with inject(TP8, rank=5):
        copied = contextvars.copy_context()
        assert copied.run(place) == (4, 1)
    assert refusal(lambda: copied.run(place)) == ENDED
    assert place() == (1, 0)


def test_a_kept_context_raises_in_a_thread_that_has_the_number_of_the_one_that_opened_it() -> None:
    """Numbers of threads are used again once one has ended."""

    def open_and_close() -> contextvars.Context:
        with inject(TP8, rank=5):
            return contextvars.copy_context()

    copied = in_thread(open_and_close)
    assert isinstance(copied, contextvars.Context)
    for _ in range(3):
        assert refusal(lambda: in_thread(lambda: copied.run(place))) == ENDED


def test_a_callback_scheduled_inside_raises_after_the_block() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        heard: asyncio.Future[object] = loop.create_future()
        with inject(TP8, rank=5):
            loop.call_soon(lambda: heard.set_result(told(place)))
        assert await heard == ENDED

    asyncio.run(main())


def test_a_callback_scheduled_before_has_nothing_injected() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        heard: asyncio.Future[object] = loop.create_future()
        loop.call_soon(lambda: heard.set_result(told(place)))
        with inject(TP8, rank=5):
            assert await heard == (1, 0)
            assert place() == (4, 1)

    asyncio.run(main())


def test_a_task_group_inside_sees_the_block_and_ends_with_it() -> None:
    async def read_later() -> tuple[int, int]:
        await asyncio.sleep(0)
        with inject(TP4, rank=3):
            await asyncio.sleep(0)
            assert place() == (2, 1)
        return place()

    async def main() -> None:
        with inject(TP8, rank=5):
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(read_later()) for _ in range(3)]
            assert [task.result() for task in tasks] == [(4, 1)] * 3
        assert place() == (1, 0)

    asyncio.run(main())


def test_a_failing_task_undoes_the_blocks_of_its_cancelled_siblings() -> None:
    async def main() -> None:
        entered = asyncio.Event()
        undone = []

        async def waits() -> None:
            try:
                with inject(TP8, rank=1):
                    entered.set()
                    await asyncio.Event().wait()
            finally:
                undone.append(place())

        async def fails() -> None:
            await entered.wait()
            with inject(TP4):
                raise LookupError("no such head")

        with pytest.raises(ExceptionGroup) as caught:
            async with asyncio.TaskGroup() as group:
                group.create_task(waits())
                group.create_task(fails())
        assert [type(error) for error in caught.value.exceptions] == [LookupError]
        assert undone == [(1, 0)]
        assert place() == (1, 0)

    asyncio.run(main())


def test_a_block_opened_in_a_task_is_foreign_to_other_threads() -> None:
    async def main() -> None:
        with inject(TP8, rank=5):
            assert refusal(lambda: in_thread(place)) == STRANGER
            assert await asyncio.to_thread(place) == (4, 1)

    asyncio.run(main())


def test_two_loops_in_two_threads_do_not_see_each_other() -> None:
    together = threading.Barrier(2)

    async def as_rank(rank: int) -> tuple[int, int]:
        with inject(TP8, rank=rank):
            together.wait(30)
            await asyncio.sleep(0)
            found = place()
            together.wait(30)
        return found

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda rank: asyncio.run(as_rank(rank)), (1, 2))) == [(4, 1), (4, 2)]


def test_an_asyncio_timeout_undoes_the_block() -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                with inject(TP8, rank=5):
                    await asyncio.Event().wait()
        assert place() == (1, 0)

    asyncio.run(main())


def holds_a_block(config: ParallelConfig, rank: int) -> Iterator[tuple[int, int]]:
    with inject(config, rank=rank):
        while True:
            yield place()


def test_a_collected_generator_undoes_its_block() -> None:
    reads = holds_a_block(TP8, 3)
    assert next(reads) == (4, 3)
    del reads
    gc.collect()
    assert place() == (1, 0)


def test_a_generator_collected_in_another_thread_undoes_its_block() -> None:
    kept = [holds_a_block(TP8, 3)]
    assert next(kept[0]) == (4, 3)
    in_thread(kept.clear)
    gc.collect()
    assert place() == (1, 0)
    assert in_thread(place) == (1, 0)


def test_a_generator_in_a_cycle_may_be_collected_while_a_block_opens() -> None:
    """The collector runs at any moment; nothing may be held that closing a block needs."""

    class Cycle:
        def __init__(self) -> None:
            self.me = self
            self.reads = holds_a_block(TP8, 3)
            next(self.reads)

    before = gc.get_threshold()
    gc.set_threshold(1)  # collect whenever an object is made
    try:
        for _ in range(50):
            Cycle()
            with inject(TP4, rank=1):
                assert place() == (2, 1)
    finally:
        gc.set_threshold(*before)
        gc.collect()
    assert not injections._open


def test_a_lingering_block_does_not_hide_an_outer_open_one() -> None:
    with inject(TP4, rank=3):
        reads = holds_a_block(TP8, 3)
        assert next(reads) == (4, 3)
        contextvars.Context().run(reads.close)
        assert place() == (2, 1)
    assert place() == (1, 0)


def test_what_lingers_is_forgotten_at_the_next_look() -> None:
    """Else a long process that closes blocks elsewhere would carry all of them for ever."""
    for _ in range(3):
        reads = holds_a_block(TP8, 3)
        next(reads)
        contextvars.Context().run(reads.close)
    assert len(injections._stack.get()) == 3
    assert place() == (1, 0)
    assert injections._stack.get() == ()


def test_a_place_is_a_value() -> None:
    here = injections.Place.here()
    assert here == injections.Place(threading.get_ident(), None)
    with pytest.raises(FrozenInstanceError):
        here.thread = 1
    assert "__dict__" not in dir(injections.Place)


def test_an_outer_block_closed_first_leaves_the_inner_one() -> None:
    outer, inner = inject(TP8, rank=5), inject(TP4, rank=1)
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    assert place() == (2, 1)
    assert refusal(lambda: contextvars.Context().run(place)).startswith(
        "topology was read outside the context of inject(rank 1 of tp 4, dcp 2), which is open"
    )
    inner.__exit__(None, None, None)
    assert place() == (1, 0)


def test_exceptions_leave_nested_blocks_one_by_one() -> None:
    seen = []
    try:
        with inject(TP8, rank=5):
            try:
                with inject(TP4, rank=1):
                    raise KeyError("inner")
            except KeyError:
                seen.append(place())
                raise RuntimeError("outer") from None
    except RuntimeError:
        seen.append(place())
    assert seen == [(4, 1), (1, 0)]


def test_the_block_swallows_no_exception_and_replaces_none() -> None:
    error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt) as caught, inject(TP8):
        raise error
    assert caught.value is error


def test_a_process_pool_of_threads_keeps_blocks_apart_when_reused() -> None:
    with ThreadPoolExecutor(1) as pool:
        with inject(TP8, rank=5):
            inside = pool.submit(contextvars.copy_context().run, place)
            assert inside.result() == (4, 1)
            assert refusal(lambda: pool.submit(place).result()) == STRANGER
        assert pool.submit(place).result() == (1, 0)


def test_what_is_injected_is_known_to_who_asks_for_the_block() -> None:
    with inject(TP8, rank=5, seed=TP4, ps=ParallelConfig(tp_size=8)) as worker:
        found = injections.current()
        assert found is not None
        assert (found.seed, found.ps, found.live) == (TP4, worker.ps, worker.state)
        assert found.is_open
        assert str(found) == BLOCK
    assert not found.is_open


def test_a_group_that_communicates_can_take_the_place_of_the_injected_one() -> None:
    with inject(TP8, rank=5) as worker:
        group = object()
        worker.connect(group)
        assert worker.dcp_group is get_parallel().dcp_group is group
        assert worker.dcp_rank == 1


CONFIGS = st.sampled_from(
    [TP8, TP4, ParallelConfig(tp_size=4), ParallelConfig(tp_size=2, pp_size=2, dcp_size=2)]
)
# What happens next: open a block at a rank, close the innermost, fail out of several, or look.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("open"), CONFIGS, st.integers(0, 3)),
        st.tuples(st.just("close"), st.integers(0, 6), st.none()),
        st.tuples(st.just("fail"), st.integers(1, 3), st.none()),
        st.tuples(st.just("thread"), st.none(), st.none()),
    ),
    max_size=25,
)


def expected_place(states: list[ParallelState]) -> tuple[int, int]:
    return (states[-1].attn_dcp_size, states[-1].attn_dcp_rank) if states else (1, 0)


@rule
@given(steps=STEPS)
def test_any_nesting_answers_as_a_stack_does(steps: list[tuple[str, object, object]]) -> None:
    """Blocks are opened at any rank and closed in any order, well or by an exception; a plain list is the oracle."""
    blocks: list[object] = []
    states: list[ParallelState] = []
    with ExitStack() as cleanup:
        for step, first, second in steps:
            match step, first, second:
                case "open", ParallelConfig() as config, int(rank):
                    block = inject(config, rank=rank)
                    worker = block.__enter__()
                    cleanup.callback(lambda b=block: b in blocks and b.__exit__(None, None, None))
                    blocks.append(block)
                    states.append(worker.state)
                case "close", int(index), _ if blocks:
                    block = blocks.pop(index % len(blocks) if index < len(blocks) else -1)
                    states.pop(index % len(states) if index < len(states) else -1)
                    block.__exit__(None, None, None)
                case "fail", int(count), _:
                    for _ in range(min(count, len(blocks))):
                        states.pop()
                        assert not blocks.pop().__exit__(ValueError, ValueError("on purpose"), None)
                case "thread", _, _:
                    copied = contextvars.copy_context()
                    seen: list[tuple[int, int]] = []
                    thread = threading.Thread(target=lambda c=copied, s=seen: s.append(c.run(place)))
                    thread.start()
                    thread.join()
                    assert seen == [expected_place(states)]
            assert place() == expected_place(states)
    assert place() == (1, 0)
