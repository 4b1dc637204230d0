"""Whether Triton is installed; a launcher asks before it starts anything, so nothing heavy is imported here."""

from __future__ import annotations

from importlib.util import find_spec

from harness.errors import UsageError


def require_triton() -> None:
    """Raise UsageError where Triton is missing."""
    if find_spec("triton") is None:
        raise UsageError(
            "--attention-backend triton needs Triton, which is not installed: pip install 'harness[triton]'"
        )
