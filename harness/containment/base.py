"""What a containment promises, whichever way the kernel is asked to keep it.

A containment starts one command and owns every process that comes from it, however it detaches itself
(own session, double fork, emptied environment, signals ignored). Two promises hold at the end: nothing of
the tree is left once `poll()` has answered, and nothing is left soon after the supervisor itself was
killed, be it with SIGKILL. The command's own end is told truthfully.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How the contained command ended: by itself with `exit_code`, or by `signal`; exactly one is set."""

    exit_code: int | None = None
    signal: int | None = None


class Contained(Protocol):
    """One running (or ended) contained command."""

    @property
    def pid(self) -> int:
        """Host pid of the command itself."""

    @property
    def pidfd(self) -> int:
        """Becomes readable for select() when the whole tree has ended; never blocks, never read from."""

    def poll(self) -> Ended | None:
        """How the command ended, once the whole tree has; None while anything of it lives."""

    def wait(self, timeout: float | None = None) -> Ended | None:
        """Block until the tree has ended, at most `timeout` seconds; None when it has not."""

    def ask_to_stop(self) -> None:
        """SIGTERM to the command alone, which may tidy up; returns at once."""

    def kill(self) -> None:
        """SIGKILL to the whole tree; returns at once."""

    def terminate(self, grace_s: float) -> Ended:
        """Ask, wait `grace_s` seconds, kill, and return when nothing is left.

        Raises InfraError when the kernel does not let go of a killed process.
        """

    def descendants(self) -> list[int]:
        """Host pids of the living processes of the tree, the command included."""

    def dump_stacks(self) -> list[int]:
        """SIGUSR1 to those processes of the tree that catch it (faulthandler); returns their host pids."""


class Containment(Protocol):
    """A way to contain. Implementations: `PidNamespace`, `Guard`."""

    @property
    def name(self) -> str:
        """`pidns` or `guard`."""

    def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdout: int,
        pass_fds: Sequence[int] = (),
    ) -> Contained:
        """Start `argv` with stdout and stderr on the file descriptor `stdout`; returns once it runs.

        Call it from the main thread only: death signals follow the thread that spawned.
        Raises InfraError when the machine has no room (memory, processes, disk), UsageError when `argv`
        cannot be executed.
        """
