"""Writing a report so that a reader sees the old file or the new one, never half of it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from harness.errors import HarnessError, UsageError


class ReportError(HarnessError):
    """A report could not be written. No code under test was judged by it."""

    exit_code = 3


def check_writable(path: Path) -> None:
    """Try the folder of a report that is to be written later. Raises UsageError where it could not be."""
    if path.is_dir():
        raise UsageError(f"{path} cannot be written: it is a folder")
    if path.exists() and not path.is_file():
        return
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            return
    except OSError as error:
        raise UsageError(f"{path} cannot be written: folder {path.parent}: {error.strerror}") from None


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 to a temporary name beside `path`, then renames it; makes missing folders.

    A path that is not a regular file (`/dev/stdout`, a pipe) is written to directly. A lone surrogate, which
    UTF-8 cannot hold, is written as an escape.
    """
    content = text.encode("utf-8", errors="backslashreplace")
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        raise ReportError(f"cannot write the report {path}: {error.strerror or error}") from error
