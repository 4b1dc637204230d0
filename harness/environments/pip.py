"""Run pip in an environment that is being built, and turn its failure into one error."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.environments.model import EnvironmentBuildError
from harness.environments.workplace import Workplace

# pip says what went wrong in its last few lines; more is its list of what it looked at. Its warnings are no cause.
LAST_LINES = 12
WARNING = "WARNING:"
QUIET = ("--quiet", "--no-input", "--disable-pip-version-check", "--progress-bar", "off")
# An index may carry a password in its address, and logs are shared.
ADDRESS = re.compile(r"(?<=://)[^\s/'\"]+|(?<=host=')[^']+")


def pip_install(python: Path, *words: str, doing: str, workplace: Workplace) -> None:
    """`pip install WORDS` by that interpreter. The user's own pip settings hold: index, proxy, cache.

    Raises EnvironmentBuildError with pip's last lines.
    """
    run([str(python), "-m", "pip", "install", *QUIET, *words], doing=doing, workplace=workplace)


def run(
    command: Sequence[str],
    *,
    doing: str,
    workplace: Workplace,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a step of a build; what it printed. Raises EnvironmentBuildError with its last lines.

    The step inherits the lock of the workplace, so that this is held until the step ends, also when the builder is
    killed first. Its temporary files are on the environment's own disk: pip moves what it unpacked, and copies
    nothing.
    """
    workplace.scratch.mkdir(exist_ok=True)
    # a path of the caller's would be importable in the environment, and hide what is missing there
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    settings = {**inherited, "TMPDIR": str(workplace.scratch), **(environment or {})}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=settings,
            cwd=workplace.scratch,
            pass_fds=(workplace.lock,),
        )
    except OSError as error:
        raise EnvironmentBuildError(f"{doing}: {command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        raise EnvironmentBuildError(f"{doing} failed (exit {done.returncode})", detail=_last(done))
    return done.stdout


def _last(done: subprocess.CompletedProcess[str]) -> str:
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    causes = [line for line in said if not line.startswith(WARNING)]
    return "\n".join(f"  {ADDRESS.sub('<host>', line)}" for line in causes[-LAST_LINES:])
