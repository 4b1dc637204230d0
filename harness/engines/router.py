"""The router before a pair of engines, as a child process."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from harness.containment import Deadline
from harness.engines.arguments import ArgValue, engine_flags
from harness.engines.child import Child
from harness.engines.client import EngineClient
from harness.errors import EngineLaunchError


class Router:
    """A router from its start to its end."""

    def __init__(self, *, prefill: str, decode: str, args: Mapping[str, ArgValue], log: Path) -> None:
        """Start it before the engines at these addresses."""
        self._nonce = secrets.token_hex(8)
        flags = ["--prefill", prefill, "--decode", decode, "--nonce", self._nonce, *engine_flags(args)]
        argv = [sys.executable, "-m", "harness", "engine", "route", *flags]
        self.child = Child(argv, what="router", env={}, log=log)

    def wait(self, deadline: Deadline, *, why_dead: Callable[[], str]) -> EngineClient:
        """A client once it routes; `why_dead` is asked when it does not answer as it should.

        Raises EngineLaunchError or DeadlineError; stopping it is the caller's.
        """
        client = EngineClient(self.child.wait_ready(deadline), why_dead=why_dead)
        with client.deadline(deadline.scope, max(deadline.remaining(), 0.001)):
            found = client.server_info().raw.get("router", {}).get("nonce")
        if found != self._nonce:
            raise EngineLaunchError(
                f"another server answers at {client.url}: nonce {found!r} is not {self._nonce!r}"
            )
        return client
