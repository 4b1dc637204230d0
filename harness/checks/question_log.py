"""`QuestionLog`: streams what became of each question to the attempt's folder while the check still asks.

Checks write each finished batch in one append, so that a `kill -9` loses at most the batch in flight, and
ring the executor's doorbell after it. Failure rule: records that cannot be written are an `InfraError`; a bell
that cannot be rung is no trouble, since the executor reads the file once more when the attempt has ended.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from harness.errors import InfraError
from harness.verdict import QuestionRecord, QuestionRole, encode_questions

# The descriptor that the executor leaves open in a job.
DOORBELL = "HARNESS_DOORBELL_FD"


class QuestionLog:
    """Appends to `path`; None writes nothing, for checks that run outside a job. Safe to share between threads:
    a batch is one append."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def write(self, check: str, role: QuestionRole, records: Sequence[QuestionRecord]) -> None:
        """Append one batch and ring. Raises InfraError where the disk does not take it."""
        if self._path is None or not records:
            return
        try:
            _append(self._path, encode_questions(check, role, records))
        except OSError as error:
            message = f"question records cannot be written to {self._path}: {error.strerror}"
            raise InfraError("reports", message) from error
        _ring()


def _append(path: Path, lines: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        left = memoryview(lines)
        while left:  # a file takes a write whole, unless its disk is about to be full
            left = left[os.write(descriptor, left) :]
    finally:
        os.close(descriptor)


def _ring() -> None:
    """Tell the executor, if there is one. A child of a job may have the variable without the descriptor, or with
    another file under its number: only a pipe is rung."""
    with contextlib.suppress(OSError, ValueError):
        descriptor = int(os.environ.get(DOORBELL, ""))
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            os.write(descriptor, b".")
