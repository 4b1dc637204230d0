"""A prefill engine, a decode engine and the router before them, as child processes.

Phases: both engines start side by side; once both are ready the router starts before them; checks talk to the
router. A side may be killed, whole or one rank of it, and is started again at its old address, as the router knows
it. Failure rule: a launch that fails leaves none of the three behind; what ended one of them is told with its name.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

from harness.containment import Deadline
from harness.engines.arguments import LaunchSpec, PairSpec
from harness.engines.child import Child, first_ended, log_tail
from harness.engines.client import EngineClient
from harness.engines.reference import ReferenceEngine, StartingEngine
from harness.engines.router import Router
from harness.errors import DeadlineError, EngineDiedError
from harness.topology import Side


class PDPair:
    """A running pair. Use `launch`, and `stop` in a finally; from one thread, on which the children depend."""

    def __init__(self, spec: PairSpec, *, folder: Path, stem: str) -> None:
        self.spec = spec
        self.started_anew = False
        self._folder = folder
        self._stem = stem
        self._starts = dict.fromkeys(Side, 0)
        self._engines: dict[Side, ReferenceEngine] = {}
        self._router: Router | None = None
        self._client: EngineClient | None = None

    @classmethod
    def launch(cls, spec: PairSpec, *, folder: Path, stem: str) -> PDPair:
        """Start all three and wait until requests can be sent. Logs go to `folder`, as `STEM-SIDE-….log`.

        Raises EngineLaunchError or DeadlineError('launch').
        """
        pair = cls(spec, folder=folder, stem=stem)
        deadline = Deadline(scope="launch", seconds=spec.launch_timeout_s, clock=time.monotonic)
        with ExitStack() as undo:
            starting = {side: pair._begin(side, undo) for side in Side}
            try:
                pair._engines = {side: engine.wait(deadline) for side, engine in starting.items()}
                pair._route(deadline, undo)
            except DeadlineError:
                pair._dump_stacks([*(engine.child for engine in starting.values()), *pair._routers()])
                raise
            undo.pop_all()
        return pair

    @property
    def client(self) -> EngineClient:
        """Speaks to the router."""
        assert self._client is not None, "a pair is launched before it is asked"
        return self._client

    def engine(self, side: Side) -> ReferenceEngine:
        """The engine that runs on this side now."""
        return self._engines[side]

    def kill(self, side: Side, *, rank: int | None = None) -> str:
        """SIGKILL to an engine's launcher, or to one of its ranks; returns once all its processes are gone, with
        what is told of its end."""
        engine = self._engines[side]
        if rank is None:
            engine.child.kill()
        else:
            ranks = {told.tp_rank: told.pid for told in engine.client.server_info().ranks or ()}
            os.kill(ranks[rank], signal.SIGKILL)
        return engine.why_dead()

    def restart(self, side: Side) -> None:
        """Start a side that has ended again, at its old address. Raises as `launch` does, and leaves it stopped."""
        old = self._engines[side]
        old.stop()
        self.started_anew = True
        deadline = Deadline(scope="launch", seconds=self.spec.launch_timeout_s, clock=time.monotonic)
        with ExitStack() as undo:
            starting = self._begin(side, undo, port=urlsplit(old.client.url).port)
            try:
                self._engines[side] = starting.wait(deadline)
            except DeadlineError:
                starting.child.dump_stacks()
                raise
            undo.pop_all()

    def stop(self) -> None:
        """End the router and both engines, all three also where one of them has ended already."""
        if self._client is not None:
            self._client.close()
        for child in reversed(self._members()):
            child.stop()
        for engine in self._engines.values():
            engine.client.close()

    def why_dead(self) -> str:
        """Who of the three has ended, and what ended it; empty while all live."""
        ended = first_ended(self._members())
        return "; ".join(f"{child.what}: {child.why_dead()}" for child in ended)

    def check_alive(self) -> None:
        """Raises EngineDiedError when one of the three has already ended."""
        ended = [child for child in self._members() if child.ended]
        if ended:
            raise EngineDiedError(self.why_dead(), detail=log_tail(ended[0].log))

    def dump_stacks(self) -> None:
        """Have every process of all three write its stacks to its log."""
        self._dump_stacks(self._members())

    def _begin(self, side: Side, undo: ExitStack, *, port: int | None = None) -> StartingEngine:
        self._starts[side] += 1
        spec: LaunchSpec = getattr(self.spec, side).with_args(
            **{"disaggregation-mode": side.value, "port": port}
        )
        parallel = spec.parallel
        again = f"-start{self._starts[side]}" if self._starts[side] > 1 else ""
        log = self._folder / f"{self._stem}-{side}-tp{parallel.tp_size}-dcp{parallel.dcp_size}{again}.log"
        starting = StartingEngine.begin(spec, log=log, what=f"{side} engine")
        undo.callback(starting.child.stop)
        return starting

    def _route(self, deadline: Deadline, undo: ExitStack) -> None:
        prefill, decode = (self._engines[side].client.url for side in Side)
        log = self._folder / f"{self._stem}-router.log"
        self._router = Router(prefill=prefill, decode=decode, args=self.spec.router_args, log=log)
        undo.callback(self._router.child.stop)
        self._client = self._router.wait(deadline, why_dead=self.why_dead)

    def _members(self) -> list[Child]:
        """All that run, the router last."""
        return [*(engine.child for engine in self._engines.values()), *self._routers()]

    def _routers(self) -> list[Child]:
        return [] if self._router is None else [self._router.child]

    @staticmethod
    def _dump_stacks(children: Iterable[Child]) -> None:
        for child in children:
            if not child.ended:
                child.dump_stacks()
