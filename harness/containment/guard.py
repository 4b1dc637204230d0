"""Containment by a guard process: the fallback where no PID namespace can be made.

The guard (`init.py` in mode `guard`) is a subreaper, so every orphan of the tree becomes its child, and it
kills them to a fixed point when the command ends or the control socket says that the supervisor wants it or
is dead. Weaker than `pidns` in one way: a SIGKILL of the guard itself lets detached processes go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.containment.tree import Tree, launch


class Guard:
    """See `base.Containment`. Needs nothing but Linux."""

    name = "guard"

    def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdout: int,
        pass_fds: Sequence[int] = (),
    ) -> Tree:
        return launch((), argv, mode="guard", cwd=cwd, env=env, stdout=stdout, pass_fds=pass_fds)
