"""stdout and stderr that no reader, locale or full disk can turn into a traceback.

Called once, by `main`. Phases: descriptors that were closed are opened on /dev/null (else the next file that
harness opens would become its stdout), both streams escape what their encoding cannot hold, and what goes
wrong in writing becomes a HarnessError, as everything that a user should hear of.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from typing import TextIO

from harness.errors import HarnessError, InfraError


class ReaderGoneError(HarnessError):
    """Whoever read the output has had enough, as `head` does. There is nobody left to tell."""

    # What a shell reports for a command that SIGPIPE ended.
    exit_code = 128 + signal.SIGPIPE


class Stream(io.TextIOWrapper):
    """A text stream whose `write` and `flush` raise HarnessErrors. `told` is its name in messages."""

    told = "stdout"

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise _explained(error, self.told) from error

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise _explained(error, self.told) from error


def guard_streams() -> None:
    """Put `Stream`s in the place of sys.stdout and sys.stderr."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free descriptor, which is this one
    sys.stdout = _guarded(sys.stdout, 1, "stdout")
    sys.stderr = _guarded(sys.stderr, 2, "stderr")


def flush_streams() -> None:
    """Write what is still buffered; call it last. A stream that fails is led to /dev/null before it raises,
    so that the interpreter's own flush at exit stays silent."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except HarnessError:
            _lead_to_null(stream)
            raise


def _guarded(stream: TextIO | None, descriptor: int, told: str) -> Stream:
    """Python leaves None where the descriptor was closed when it started."""
    old = stream if isinstance(stream, io.TextIOWrapper) else open(descriptor, "w", encoding="utf-8")  # noqa: SIM115
    encoding, buffered = old.encoding, old.line_buffering
    new = Stream(old.detach(), encoding=encoding, errors="backslashreplace", line_buffering=buffered)
    new.told = told
    return new


def _lead_to_null(stream: TextIO) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def _explained(error: OSError, told: str) -> HarnessError:
    if isinstance(error, BrokenPipeError):
        return ReaderGoneError(f"nobody reads {told}")
    return InfraError(told, f"cannot be written: {error.strerror or error}")
