"""Containment by a PID namespace: the kernel itself ends the tree, whatever its processes do.

The chain is `setpriv --pdeathsig KILL` → `unshare --pid --fork --kill-child` → `init.py` → command. Death
of the supervisor kills unshare, which kills the init, with which the kernel kills the namespace; each link
survives a SIGKILL of any other. Works as root, and as an ordinary user where user namespaces are allowed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.containment.tree import Tree, launch
from harness.errors import UsageError

# Starting a namespace takes about 15 ms; a kernel that needs longer than this has another problem.
PROBE_SECONDS = 20.0


class PidNamespace:
    """See `base.Containment`. Built by `PidNamespace.probed()`, which proves that it works here."""

    name = "pidns"

    def __init__(self, prefix: Sequence[str]) -> None:
        self._prefix = tuple(prefix)

    @classmethod
    def probed(cls) -> PidNamespace:
        """The first form that works here, as root's or as a user namespace; UsageError says why none does."""
        reasons = []
        for prefix in _forms():
            reason = _probe(prefix)
            if reason is None:
                return cls(prefix)
            reasons.append(reason)
        raise UsageError(f"no PID namespace can be made here: {'; '.join(reasons)}")

    def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdout: int,
        pass_fds: Sequence[int] = (),
    ) -> Tree:
        return launch(self._prefix, argv, mode="pidns", cwd=cwd, env=env, stdout=stdout, pass_fds=pass_fds)


def _forms() -> list[list[str]]:
    """Commands that would run their arguments as PID 1 of a new namespace, the plainest first."""
    setpriv, unshare = shutil.which("setpriv"), shutil.which("unshare")
    if setpriv is None or unshare is None:
        raise UsageError(
            "no PID namespace can be made here: setpriv and unshare (util-linux) are not installed"
        )
    dying = [setpriv, "--pdeathsig", "KILL", "--", unshare]
    namespace = ["--pid", "--fork", "--kill-child", "--mount-proc", "--"]
    as_user = [*dying, "--user", "--map-current-user", *namespace]
    return [[*dying, *namespace], as_user] if os.geteuid() == 0 else [as_user]


def _probe(prefix: Sequence[str]) -> str | None:
    """Run `true` in it: None when that works, else what was said."""
    try:
        done = subprocess.run(
            [*prefix, "true"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PROBE_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"unshare did not answer within {PROBE_SECONDS:g} s"
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return None if done.returncode == 0 else (done.stderr.strip() or f"unshare ended with {done.returncode}")
