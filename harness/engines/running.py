"""What a check runs against: one engine or a pair, alike to whoever launches, asks and stops it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from harness.engines.arguments import LaunchSpec, PairSpec
from harness.engines.client import EngineClient
from harness.engines.pair import PDPair
from harness.engines.reference import ReferenceEngine


class RunningEngine(Protocol):
    """`ReferenceEngine` or `PDPair`. Use `stop` in a finally."""

    @property
    def spec(self) -> LaunchSpec | PairSpec: ...

    @property
    def client(self) -> EngineClient: ...

    @property
    def started_anew(self) -> bool:
        """Whether a part of it was started again: what that part held before is gone."""
        ...

    def check_alive(self) -> None: ...

    def why_dead(self) -> str:
        """What ended it, or who of a pair and what; empty while it lives."""
        ...

    def dump_stacks(self) -> None: ...

    def stop(self) -> object: ...


def launch_engine(spec: LaunchSpec | PairSpec, *, folder: Path, number: int, name: str) -> RunningEngine:
    """Start what is asked for and wait until it answers; `number` and `name` begin the names of its logs.

    Raises EngineLaunchError or DeadlineError('launch').
    """
    if isinstance(spec, PairSpec):
        return PDPair.launch(spec, folder=folder, stem=str(number))
    parallel = spec.parallel
    log = folder / f"{number}-{name}-tp{parallel.tp_size}-dcp{parallel.dcp_size}.log"
    return ReferenceEngine.launch(spec, log=log)
