"""`inject()`: be any rank of any topology, without hardware, processes or process groups.

For tests and for engines that run ranks as threads. It answers for all three sources (config seed, per-worker
ps, live), fakes no collective (the injected group names its ranks and raises on anything else), and restores
what was there on any exit: return, exception, closed generator, cancelled task.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ContextDecorator, contextmanager, nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from harness.errors import InjectionError, TopologyError
from harness.topology import injections
from harness.topology.config import ParallelConfig
from harness.topology.live import InjectedParallel
from harness.topology.names import hint, known_keywords
from harness.topology.resolve import WorkerSources, resolve
from harness.topology.state import ParallelState

# Whose `get_parallel()` a block answers for.
TARGETS = ("reference", "sglang")


@dataclass(frozen=True, slots=True)
class InjectedGroup:
    """The ranks of an injected DCP group; what would communicate raises InjectionError, naming the call."""

    ranks: tuple[int, ...]
    rank: int

    @property
    def size(self) -> int:
        return len(self.ranks)

    def __len__(self) -> int:
        return len(self.ranks)

    def __iter__(self) -> Iterator[int]:
        return iter(self.ranks)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # a protocol that Python probes for, not a call someone wrote
            raise AttributeError(name)
        raise InjectionError(f"dcp_group.{name}: inject() fakes topology, not communication between ranks")


class InjectedWorker(InjectedParallel):
    """One worker as code under test meets it: its live topology, and beside it the two other sources."""

    __slots__ = ("ps", "rank", "seed")

    def __init__(
        self, injection: injections.Injection, *, rank: int, seed: ParallelConfig, ps: ParallelState
    ) -> None:
        super().__init__(injection)
        self.rank = rank
        self.seed = seed
        self.ps = ps

    def connect(self, dcp_group: object) -> None:
        """Let live reads answer a group that does communicate; called by worlds whose ranks are threads."""
        self._injection.dcp_group = dcp_group


@known_keywords
def inject(
    config: ParallelConfig,
    *,
    rank: int = 0,
    seed: ParallelConfig | None = None,
    ps: ParallelState | ParallelConfig | None = None,
    live: ParallelState | ParallelConfig | None = None,
    target: str = "reference",
) -> AbstractContextManager[InjectedWorker]:
    """Run the block as `rank` (0 .. tp * pp - 1) of `config`; blocks nest, the innermost answers.

    The sources agree unless one is given apart: `seed` is what launch arguments say, `ps` what the worker
    carries, `live` what `get_parallel()` answers; a config for one of these stands for the same rank of that
    topology. Sources may contradict each other, but none itself. A thread started inside needs the context
    copied, else its reads raise InjectionError, as do reads through the yielded worker after the block.

    What it returns can be entered once (InjectionError), or decorate a function.

    Raises TopologyError, before anything is injected, for a rank that `config` does not have, a source that
    contradicts itself, and a name that is not known. With target "sglang" the real package answers as well
    (`targets.sglang`); the worker is then a `SglangWorker`.
    """
    if target not in TARGETS:
        raise TopologyError(
            f"target is {target!r}; allowed: {', '.join(TARGETS)}{hint(str(target), TARGETS)}"
        )
    return _Block(resolve(config, rank=rank, seed=seed, ps=ps, live=live), target)


class _Block(ContextDecorator, AbstractContextManager[InjectedWorker]):
    """What `inject()` returns. A decorated function gets a block of its own at each call."""

    def __init__(self, sources: WorkerSources, target: str) -> None:
        self._sources = sources
        self._target = target
        self._block: AbstractContextManager[InjectedWorker] | None = None

    def __enter__(self) -> InjectedWorker:
        if self._block is not None:
            raise InjectionError("an inject() block can be entered once: call inject() anew for each block")
        self._block = _block(self._sources, self._target)
        return self._block.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if self._block is None:
            raise InjectionError("an inject() block was left that has not been entered")
        return self._block.__exit__(kind, error, trace)

    def _recreate_cm(self) -> _Block:
        return _Block(self._sources, self._target)


@contextmanager
def _block(sources: WorkerSources, target: str) -> Iterator[InjectedWorker]:
    injection = injections.Injection(sources.live, _dcp_group(sources.live), seed=sources.seed, ps=sources.ps)
    worker = InjectedWorker(injection, rank=sources.rank, seed=sources.seed, ps=sources.ps)
    injections.push(injection)
    try:
        with _in_target(target, injection, worker) as worker:
            yield worker
    finally:
        injections.remove(injection)


def _in_target(
    target: str, injection: injections.Injection, worker: InjectedWorker
) -> AbstractContextManager[InjectedWorker]:
    if target == "reference":
        return nullcontext(worker)
    # Imported when it is asked for: this room stays free of torch and of SGLang.
    from harness.topology.targets.sglang import inject_sglang

    return inject_sglang(injection, worker)


def _dcp_group(live: ParallelState) -> InjectedGroup:
    size = live.attn_dcp_size
    first = live.pp_rank * live.tp_size + live.tp_rank // size * size
    return InjectedGroup(tuple(range(first, first + size)), live.attn_dcp_rank)
