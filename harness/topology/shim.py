"""`inject()`: be any rank of any topology, without hardware, processes or process groups.

For tests and for engines that run ranks as threads. It answers for all three sources (config seed, per-worker
ps, live), fakes no collective (the injected group names its ranks and raises on anything else), and restores
what was there on any exit: return, exception, closed generator, cancelled task.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from harness.errors import InjectionError, TopologyError
from harness.topology import injections
from harness.topology.config import ParallelConfig
from harness.topology.live import InjectedParallel
from harness.topology.state import ParallelState


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


@contextmanager
def inject(
    config: ParallelConfig,
    *,
    rank: int = 0,
    seed: ParallelConfig | None = None,
    ps: ParallelState | None = None,
    live: ParallelState | None = None,
) -> Iterator[InjectedWorker]:
    """Run the block as `rank` (0 .. tp * pp - 1) of `config`; blocks nest, the innermost answers.

    The sources agree unless one is given apart: `seed` is what launch arguments say, `ps` what the worker
    carries, `live` what `get_parallel()` answers. A thread started inside needs the context copied, else its
    reads raise InjectionError, as do reads through the yielded worker after the block. Raises TopologyError
    for a rank that `config` does not have.
    """
    if type(rank) is not int or not 0 <= rank < config.world_size:
        raise TopologyError(
            f"rank is {rank!r}, but must be an integer in 0..{config.world_size - 1} (tp * pp)"
        )
    own = ParallelState.from_config(config, tp_rank=rank % config.tp_size, pp_rank=rank // config.tp_size)
    live = live or own
    injection = injections.Injection(live, _dcp_group(live))
    injections.push(injection)
    try:
        yield InjectedWorker(injection, rank=rank, seed=seed or config, ps=ps or own)
    finally:
        injections.remove(injection)


def _dcp_group(live: ParallelState) -> InjectedGroup:
    size = live.attn_dcp_size
    first = live.pp_rank * live.tp_size + live.tp_rank // size * size
    return InjectedGroup(tuple(range(first, first + size)), live.attn_dcp_rank)
