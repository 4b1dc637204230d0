"""Stand-in workers for tests of code that is given one: they always carry a `ps`, and make up no answer.

A double that invents attributes (MagicMock) answers a new topology read in silence, and one that is put together
by hand forgets `ps`: the test then passes, or breaks, for the wrong reason. So does code that reads
`getattr(worker, "dcp_size", 1)`: names of the topology that are not there raise what no default swallows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, NoReturn

from harness.errors import TopologyError
from harness.topology import injections
from harness.topology.config import ParallelConfig
from harness.topology.live import LiveParallel
from harness.topology.names import SLIP, nearest, swapped_letters, unanswered_read, unknown_name
from harness.topology.resolve import resolve, state_of
from harness.topology.sizes import FIELDS as SIZES
from harness.topology.state import ParallelState

# Every name of a number of the topology, in any source.
TOPOLOGY_NAMES = frozenset(
    {
        *(field.name for field in (*fields(ParallelState), *fields(ParallelConfig))),
        *(name for name in dir(LiveParallel) if name.startswith(("dcp_", "attn_dcp_"))),
    }
)
# What only the live topology calls so, and where a worker finds it.
_LIVE_ONLY = {
    "dcp_rank": "ps.attn_dcp_rank",
    "dcp_enabled": "get_parallel().dcp_enabled",
    "dcp_group": "get_parallel().dcp_group",
}
# The arguments of `mock_worker`; any other keyword is an attribute.
_ARGUMENTS = ("config", "rank", "ps", "server_args")


class MockServerArgs:
    """Launch arguments, the seed: every size of a ParallelConfig under its own name, and what was given beside."""

    def __init__(self, seed: ParallelConfig, others: Mapping[str, Any]) -> None:
        vars(self).update(asdict(seed) | dict(others))

    if not TYPE_CHECKING:  # a type checker lets tests read what they gave

        def __getattr__(self, name: str) -> NoReturn:
            error = unanswered_read if name in TOPOLOGY_NAMES else unknown_name
            raise error("server_args of this mock worker", name, {other: other for other in vars(self)})


class MockWorker:
    """A model runner, TP worker or scheduler as far as a test gave it attributes; `ps` can be replaced only by
    another ParallelState. Reading what is not there raises UnknownNameError, which says where the nearest is, or
    UnansweredReadError for a name of the topology: `hasattr`, and `getattr` with a default, raise that too.
    """

    ps: ParallelState
    server_args: MockServerArgs

    def __init__(self, *, ps: ParallelState, server_args: MockServerArgs, **attributes: Any) -> None:
        self.ps = ps
        self.server_args = server_args
        for name, value in attributes.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "ps" and not isinstance(value, ParallelState):
            raise TopologyError(f"ps is {value!r}, but a mock worker always carries a ParallelState")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if name == "ps":
            raise TopologyError("ps cannot be deleted: a mock worker always carries a ParallelState")
        super().__delattr__(name)

    if not TYPE_CHECKING:  # a type checker lets tests read what they gave

        def __getattr__(self, name: str) -> NoReturn:
            own = {attribute: attribute for attribute in vars(self)}
            places = {field.name: f"ps.{field.name}" for field in fields(ParallelState)}
            for argument in vars(vars(self).get("server_args", self)):
                places.setdefault(argument, f"server_args.{argument}")
            places = _LIVE_ONLY | places
            error = unanswered_read if name in TOPOLOGY_NAMES else unknown_name
            raise error("this mock worker", name, places | own)


def mock_worker(config: ParallelConfig | None = None, rank: int = 0, **attributes: Any) -> MockWorker:
    """A worker of `rank` of `config`; without a config the injected one, or the only rank of an engine of one.

    Attributes are set as given: values, functions, a `ps` of its own (a ParallelState, or a ParallelConfig for
    the same rank of that topology). `server_args` is a mapping of launch arguments on top of the sizes. Raises
    TopologyError for a ps that is missing (None) or contradicts itself, for a rank that is not there, and for an
    attribute that may be meant for an argument or for a size of the topology (it can be set on the worker).
    """
    seed, ps = _topology(config, rank)
    for name in attributes:
        _refuse_slip(name, alone=config is None and injections.current() is None)
    if "ps" in attributes:
        ps = state_of("ps", attributes.pop("ps"), rank)
    given = attributes.pop("server_args", {})
    if not isinstance(given, Mapping):
        raise TopologyError(f"server_args is {given!r}, but must be a mapping of launch arguments")
    return MockWorker(ps=ps, server_args=MockServerArgs(seed, given), **attributes)


def _refuse_slip(name: str, *, alone: bool) -> None:
    """Raise TopologyError for an attribute under a name that looks like another one.

    `alone` says that no topology was given: then a size among the attributes would change nothing but itself.
    """
    if name in _ARGUMENTS:
        return
    if name in SIZES or (alone and name in TOPOLOGY_NAMES - {"gpu_id"}):
        meant = "a size or rank of the topology: give it a config, mock_worker(ParallelConfig(tp_size=8), rank=5)."
    elif near := nearest(name, _ARGUMENTS, alike=SLIP) or _swapped(name):
        meant = f"very like {near!r}; did you mean that?"
    else:
        return
    raise TopologyError(
        f"mock_worker() was given the attribute {name!r}, which is {meant}"
        f" If an attribute is what you want, set it on the worker: worker.{name} = ..."
    )


def _swapped(name: str) -> str | None:
    return None if name in TOPOLOGY_NAMES else swapped_letters(name, sorted(TOPOLOGY_NAMES))


def _topology(config: ParallelConfig | None, rank: int) -> tuple[ParallelConfig, ParallelState]:
    injection = injections.current()
    if config is None and injection is not None:
        if rank != 0:
            raise TopologyError(f"rank {rank} needs a config; without one the worker is that of {injection}")
        return injection.seed, injection.ps
    sources = resolve(ParallelConfig() if config is None else config, rank=rank)
    return sources.seed, sources.ps
