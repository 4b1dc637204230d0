"""Whether Triton is here and works; a launcher asks before it starts anything, and never imports it itself: Triton
decides when it is imported how kernels run."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from importlib.util import find_spec

from harness.errors import UsageError

# The extra's own bound.
LEAST = (3, 5)
_INSTALL = "pip install 'harness[triton]'"
_NEEDED = "--attention-backend triton needs Triton"
# What the kernels import of it.
_PROBE = "import triton, triton.language, triton.runtime.interpreter; print(triton.__version__)"


def find_triton() -> str:
    """Where Triton is, found without an import. Raises UsageError where it is missing."""
    # An empty folder of that name, as a removed package leaves behind, is found as well, and has no origin.
    spec = find_spec("triton")
    if spec is None or spec.origin is None:
        raise UsageError(f"{_NEEDED}, which is not installed: {_INSTALL}")
    return spec.origin


def require_triton() -> None:
    """Raise UsageError where Triton is missing, too old, or cannot be imported.

    It is imported in a process of its own, once: a broken installation may raise anything, or die.
    """
    origin = find_triton()
    done, said = _probe()
    if not done:
        raise UsageError(f"{_NEEDED}, and {origin} cannot be imported ({said}): {_INSTALL}")
    if tuple(map(int, re.findall(r"\d+", said)[:2])) < LEAST:
        wanted = ".".join(map(str, LEAST))
        raise UsageError(f"{_NEEDED} {wanted} or newer, found {said}: {_INSTALL}")


@cache
def _probe() -> tuple[bool, str]:
    """Whether the import succeeds, and the last line that it said: the version, or what went wrong."""
    done = subprocess.run(
        [sys.executable, "-c", _PROBE], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    lines = (done.stderr if done.returncode else done.stdout).strip().splitlines()
    return done.returncode == 0, lines[-1].strip() if lines else f"exit status {done.returncode}"
