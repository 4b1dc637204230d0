"""Stand-in workers for tests of code that is given one: they always carry a `ps`, and make up no answer.

A double that invents attributes (MagicMock) answers a new topology read in silence, and one that is put together
by hand forgets `ps`: the test then passes, or breaks, for the wrong reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, NoReturn

from harness.errors import TopologyError
from harness.topology import injections
from harness.topology.config import ParallelConfig
from harness.topology.names import unknown_name
from harness.topology.resolve import resolve, state_of
from harness.topology.state import ParallelState


class MockServerArgs:
    """Launch arguments, the seed: every size of a ParallelConfig under its own name, and what was given beside."""

    def __init__(self, seed: ParallelConfig, others: Mapping[str, Any]) -> None:
        vars(self).update(asdict(seed) | dict(others))

    if not TYPE_CHECKING:  # a type checker lets tests read what they gave

        def __getattr__(self, name: str) -> NoReturn:
            raise unknown_name(
                "server_args of this mock worker", name, {other: other for other in vars(self)}
            )


class MockWorker:
    """A model runner, TP worker or scheduler as far as a test gave it attributes; `ps` can be replaced only by
    another ParallelState. Reading what is not there raises UnknownNameError, which says where the nearest is.
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
            raise unknown_name("this mock worker", name, places | own)


def mock_worker(config: ParallelConfig | None = None, rank: int = 0, **attributes: Any) -> MockWorker:
    """A worker of `rank` of `config`; without a config the injected one, or the only rank of an engine of one.

    Attributes are set as given: values, functions, a `ps` of its own (a ParallelState, or a ParallelConfig for
    the same rank of that topology). `server_args` is a mapping of launch arguments on top of the sizes. Raises
    TopologyError for a ps that is missing (None) or contradicts itself, and for a rank that is not there.
    """
    seed, ps = _topology(config, rank)
    if "ps" in attributes:
        ps = state_of("ps", attributes.pop("ps"), rank)
    arguments = MockServerArgs(seed, attributes.pop("server_args", {}))
    return MockWorker(ps=ps, server_args=arguments, **attributes)


def _topology(config: ParallelConfig | None, rank: int) -> tuple[ParallelConfig, ParallelState]:
    injection = injections.current()
    if config is None and injection is not None:
        if rank != 0:
            raise TopologyError(f"rank {rank} needs a config; without one the worker is that of {injection}")
        return injection.seed, injection.ps
    sources = resolve(ParallelConfig() if config is None else config, rank=rank)
    return sources.seed, sources.ps
