"""The reference engine as a child process: launch → ready → client → stop.

The command line is made from the suite's engine arguments; the nonce in `/server_info` proves that the server
answering is the one started here.
"""

from __future__ import annotations

import secrets
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from harness.containment import Deadline
from harness.engines.arguments import LaunchSpec, engine_flags
from harness.engines.child import Child
from harness.engines.client import EngineClient
from harness.errors import DeadlineError, EngineLaunchError


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingEngine:
    """A launched engine that is not ready yet: so two of them can start side by side."""

    child: Child
    spec: LaunchSpec
    nonce: str

    @classmethod
    def begin(cls, spec: LaunchSpec, *, log: Path, what: str = "engine") -> StartingEngine:
        """Start the process; `what` is its word in messages."""
        nonce = secrets.token_hex(8)
        child = Child(_command(spec, nonce=nonce), what=what, env=spec.env, log=log)
        return cls(child=child, spec=spec, nonce=nonce)

    def wait(self, deadline: Deadline) -> ReferenceEngine:
        """Wait until every rank answers. Raises EngineLaunchError or DeadlineError; stopping it is the caller's."""
        url = self.child.wait_ready(deadline)
        engine = ReferenceEngine(self.child, spec=self.spec, url=url)
        with engine.client.deadline(deadline.scope, max(deadline.remaining(), 0.001)):
            found = engine.client.server_info().nonce
        if found != self.nonce:
            raise EngineLaunchError(f"another server answers at {url}: nonce {found!r} is not {self.nonce!r}")
        return engine


class ReferenceEngine:
    """A running reference engine. Use `launch`, and `stop` in a finally."""

    # The same engine from its launch to its end; a pair's sides may be started again.
    started_anew = False

    def __init__(self, child: Child, *, spec: LaunchSpec, url: str) -> None:
        self.spec = spec
        self.child = child
        self.client = EngineClient(url, why_dead=child.why_dead)

    @classmethod
    def launch(cls, spec: LaunchSpec, *, log: Path) -> ReferenceEngine:
        """Start and wait until every rank answers. Raises EngineLaunchError or DeadlineError('launch')."""
        deadline = Deadline(scope="launch", seconds=spec.launch_timeout_s, clock=time.monotonic)
        starting = StartingEngine.begin(spec, log=log)
        try:
            return starting.wait(deadline)
        except BaseException as error:
            if isinstance(error, DeadlineError):
                starting.child.dump_stacks()
            starting.child.stop()
            raise

    @property
    def log(self) -> Path:
        return self.child.log

    def stop(self) -> int:
        """End the engine and all its processes; returns the launcher's exit code."""
        self.client.close()
        return self.child.stop()

    def why_dead(self) -> str:
        """What ended the engine, in its launcher's words; empty while it lives."""
        return self.child.why_dead()

    def dump_stacks(self) -> None:
        """Have every process of the engine write its stacks to the log; for a deadline that passed."""
        self.child.dump_stacks()

    def check_alive(self) -> None:
        """Raises EngineDiedError when the engine has already ended."""
        self.child.check_alive()


def _command(spec: LaunchSpec, *, nonce: str) -> list[str]:
    parallel = spec.parallel
    flags = ["--tp", str(parallel.tp_size), "--dcp", str(parallel.dcp_size), "--model", spec.model]
    flags += ["--nonce", nonce, *engine_flags(spec.args)]
    for fault in spec.faults:
        flags += ["--fault", fault]
    if spec.faults:
        # Those of a run, of which this engine need not be what each one breaks: that is looked at before, for the
        # run as a whole.
        flags.append("--allow-idle-faults")
    return [sys.executable, "-m", "harness", "engine", "serve", *flags]
