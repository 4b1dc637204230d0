"""A whole world in one process, for tests: every rank of a topology as a thread that can talk to the others.

    results = dcp_world(tp=4, dcp=2).run(lambda rank: rank.comm.dcp.all_gather(rank.parallel...))

The pytest fixture `dcp_world` gives a `WorldMaker`. Each rank runs under `inject()`, so code that reads
`get_parallel()` finds itself; the live `dcp_group` does communicate here, as in an engine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from harness.errors import TopologyError, UsageError
from harness.refengine.comm.base import Comms, Communicator
from harness.refengine.comm.threads import RankThreads
from harness.topology import InjectedGroup, InjectedWorker, ParallelConfig
from harness.topology.sizes import config_of

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class WorldGroup(InjectedGroup):
    """The DCP group of a rank: its ranks, and every verb of its communicator."""

    communicator: Communicator

    def __getattr__(self, name: str) -> Any:
        return getattr(self.communicator, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldRank:
    """What the function of one rank is given: its number in the world, its worker, and its ends of the groups."""

    rank: int
    parallel: InjectedWorker
    comm: Comms


class World:
    """All ranks of one topology. Reusable, also after a failure: each run has groups of its own."""

    def __init__(self, config: ParallelConfig) -> None:
        self.config = config

    def run(self, fn: Callable[[WorldRank], R]) -> list[R]:
        """Call `fn` as each rank, all at the same time; results in rank order.

        An error of one rank ends the others' collectives, and is raised with a note that names the rank. A
        collective that not all ranks of its group enter raises CommError, naming who waits where.
        """
        threads = RankThreads(self.config)

        def work(worker: InjectedWorker) -> R:
            comm = threads.connect(worker.rank)
            if worker.dcp_enabled:
                group = cast(InjectedGroup, worker.dcp_group)
                worker.connect(WorldGroup(group.ranks, group.rank, comm.dcp))
            return fn(WorldRank(rank=worker.rank, parallel=worker, comm=comm))

        return threads.run(work)


class WorldMaker:
    """The fixture `dcp_world`: call it for a world of any sizes, or use it as the world of the test's mark."""

    def __init__(self, marked: ParallelConfig | None) -> None:
        self._marked = marked

    def __call__(self, **sizes: int | bool) -> World:
        """A world of sizes under the mark's keys: `dcp_world(tp=4, dcp=2)`. Raises TopologyError."""
        try:
            return World(config_of(**sizes))
        except TopologyError as error:
            raise TopologyError(f"dcp_world: {error}") from None

    @property
    def config(self) -> ParallelConfig:
        """The topology of the test's mark. Raises UsageError where it has none."""
        if self._marked is None:
            raise UsageError(
                "the test has no @pytest.mark.topology(...): say which world, dcp_world(tp=4, dcp=2).run(...)"
            )
        return self._marked

    def run(self, fn: Callable[[WorldRank], R]) -> list[R]:
        """`World.run` in the topology of the test's mark."""
        return World(self.config).run(fn)
