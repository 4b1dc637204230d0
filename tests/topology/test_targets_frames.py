"""Frames over the package's process state, against a stand-in module with the same slots: any order of closing."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from topology_rules import rule

from harness.errors import InjectionError
from harness.topology import InjectedWorker, ParallelConfig, inject
from harness.topology.targets import frames
from harness.topology.targets.thread_guard import guard


class Parallel:
    __slots__ = ("_config", "_overrides", "_stamp")

    def __init__(self) -> None:
        self._overrides: dict[str, int] = {}
        self._stamp: dict[str, int] = {"base": 0}
        self._config: object = None

    def __getattr__(self, name: str) -> int:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._overrides[name]


class Context:
    __slots__ = ("_overrides_log", "_server_args", "flags", "parallel")

    def __init__(self, parallel: Parallel) -> None:
        self.parallel = parallel
        self._server_args: object = None
        self._overrides_log: list[int] = []
        self.flags = SimpleNamespace(capture=SimpleNamespace(enable_torch_compile=False))


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Any:
    module: Any = ModuleType(frames.CONTEXT_MODULE)
    module._PARALLEL = Parallel()
    module._CONTEXT = Context(module._PARALLEL)
    monkeypatch.setitem(sys.modules, frames.CONTEXT_MODULE, module)
    return module


class Block:
    """What `inject(target="sglang")` does to the package, with a number in the place of a topology."""

    def __init__(self, package: Any, number: int) -> None:
        self.number = number
        self._inject: AbstractContextManager[InjectedWorker] = inject(ParallelConfig())
        worker = self._inject.__enter__()
        try:
            self._frame = frames.open_frame(worker._injection)
        except InjectionError:
            self._inject.__exit__(None, None, None)
            raise
        package._PARALLEL._overrides = {"n": number}
        package._PARALLEL._stamp.clear()
        package._PARALLEL._stamp["n"] = number
        package._CONTEXT._server_args = number
        package._CONTEXT._overrides_log.append(number)
        package._CONTEXT.flags.capture.enable_torch_compile = bool(number % 2)
        guard(package._PARALLEL)

    def close(self) -> None:
        frames.close_frame(self._frame)
        self._inject.__exit__(None, None, None)


def visible(package: Any) -> list[object]:
    parallel, context = package._PARALLEL, package._CONTEXT
    values = [dict(parallel._overrides), dict(parallel._stamp), context._server_args]
    return [*values, context.flags.capture.enable_torch_compile, type(parallel).__name__]


def containers(package: Any) -> list[int]:
    parallel, context = package._PARALLEL, package._CONTEXT
    return [
        id(parallel),
        id(context),
        *map(id, (parallel._overrides, parallel._stamp, context._overrides_log)),
    ]


@settings(rule, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves=st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=12))
def test_the_last_open_block_is_what_shows(package: Any, moves: list[int | None]) -> None:
    """None opens a block, a number closes one of those that are open, in whatever order."""
    base, before = visible(package), containers(package)
    shown: dict[int, list[object]] = {}
    blocks: list[Block] = []
    for number, move in enumerate(moves):
        if move is None:
            blocks.append(Block(package, number))
            shown[number] = visible(package)
        elif blocks:
            blocks.pop(move % len(blocks)).close()
        assert visible(package) == (shown[blocks[-1].number] if blocks else base)
    while blocks:
        blocks.pop().close()
    assert visible(package) == base
    assert containers(package) == before
    assert package._CONTEXT._overrides_log == []


@pytest.fixture
def block(package: Any) -> Iterator[Block]:
    opened = Block(package, 7)
    yield opened
    opened.close()


def stranger_words(kind: str) -> str:
    return (
        f"sglang's topology was asked for while another {kind} has inject(rank 0 of tp 1, dcp 1) open: the package"
        " keeps one topology per process, so one process is one rank at a time; start a process per rank"
    )


@pytest.mark.usefixtures("block")
def test_another_thread_neither_reads_nor_opens(package: Any) -> None:
    held, said = package._PARALLEL, []

    def stranger() -> None:
        for attempt in (lambda: held.n, lambda: held._overrides, lambda: Block(package, 8)):
            with pytest.raises(InjectionError) as caught:
                attempt()
            said.append(str(caught.value))

    thread = threading.Thread(target=stranger)
    thread.start()
    thread.join()
    assert held.n == 7
    assert said == [stranger_words("thread")] * 3


def test_another_task_neither_reads_nor_opens(package: Any) -> None:
    async def stranger(opened: asyncio.Event) -> list[str]:
        await opened.wait()
        said = []
        for attempt in (lambda: package._PARALLEL.n, lambda: Block(package, 8)):
            with pytest.raises(InjectionError) as caught:
                attempt()
            said.append(str(caught.value))
        return said

    async def main() -> list[str]:
        opened = asyncio.Event()
        task = asyncio.create_task(stranger(opened))
        block = Block(package, 7)
        opened.set()
        said = await task
        assert package._PARALLEL.n == 7
        block.close()
        return said

    assert asyncio.run(main()) == [stranger_words("task")] * 2


def test_the_guard_is_put_on_once_and_taken_off(package: Any) -> None:
    outer, inner = Block(package, 1), Block(package, 2)
    assert [kind.__name__ for kind in type(package._PARALLEL).__mro__[:2]] == ["GuardedParallel", "Parallel"]
    inner.close()
    assert type(package._PARALLEL).__name__ == "GuardedParallel"
    outer.close()
    assert type(package._PARALLEL) is Parallel


def test_a_block_may_be_closed_by_another_thread(package: Any) -> None:
    """As a generator is that the collector finds there."""
    base, block = visible(package), Block(package, 7)
    thread = threading.Thread(target=block.close)
    thread.start()
    thread.join()
    assert visible(package) == base
