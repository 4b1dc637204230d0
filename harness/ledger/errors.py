"""What can go wrong with the ledger file, each with what to do about it.

SQLite tells a full disk, a file that is no database and a read-only folder apart only in its message
texts; they are stable across versions and pinned by tests that provoke each for real.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from json import JSONDecodeError
from pathlib import Path
from typing import NoReturn

from sqlalchemy.exc import DBAPIError

from harness.errors import HarnessError, UsageError

# What SQLite needs beside the database to open a write-ahead log at all: one page of its index.
WAL_INDEX_BYTES = 32 * 1024


class LedgerError(HarnessError):
    """The ledger cannot be read or written; the message says what to do. No code under test was judged by it."""

    exit_code = 3


class UnknownRunError(UsageError):
    """The ledger holds no such run."""


# Said of tables that something else made, or an unreleased harness under the same schema number.
NOT_OURS = "its tables are not those of this harness", "move it away; a new one is made on the next run"

FULL = "the disk is full", "free some space and run again"

CORRUPT = (
    "it is corrupt",
    "move it away together with its -wal and -shm files; a new one is made on the next run",
)

# SQLite's text → (what it means, what to do); looked up in this order.
_ADVICE = (
    ("database or disk is full", *FULL),
    (
        "file is not a database",
        "it is not a ledger (corrupt or overwritten)",
        "move it away; a new one is made on the next run",
    ),
    ("malformed", *CORRUPT),
    ("Could not decode to UTF-8", *CORRUPT),
    (
        "readonly database",
        "it is read-only, or was moved away while it was in use",
        "make its folder writable, or choose another reports folder",
    ),
    ("no such table", *NOT_OURS),
    ("no such column", *NOT_OURS),
    ("no column named", *NOT_OURS),
    (
        "unable to open database file",
        "it cannot be opened",
        "make its folder exist and be writable, or choose another reports folder",
    ),
    (
        "disk I/O error",
        "the disk reports an I/O error",
        "look at the disk; the ledger needs a local one, not a network share",
    ),
    (
        "database is locked",
        "another process has held its lock for too long",
        "look for a process stopped in mid-write; the ledger needs a local disk, not a network share",
    ),
)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns what SQLite and the file system raise about `path` into `LedgerError`.

    Mistakes of harness itself (a broken statement, a violated constraint) pass through as they are.
    """
    try:
        yield
    except DBAPIError as error:
        _explain(path, str(error.orig), error)
    except (UnicodeDecodeError, JSONDecodeError) as error:  # a flipped bit in a text column
        raise LedgerError(f"ledger {path}: {': '.join(CORRUPT)}") from error
    except OSError as error:
        advice = "make its folder writable, or choose another reports folder"
        raise LedgerError(f"ledger {path}: {error.strerror or error}: {advice}") from error


def _explain(path: Path, text: str, error: DBAPIError) -> NoReturn:
    for marker, meaning, advice in _ADVICE:
        if marker in text:
            if marker == "disk I/O error" and _is_full(path.parent):
                meaning, advice = FULL
            raise LedgerError(f"ledger {path}: {meaning}: {advice}") from error
    raise error


def _is_full(folder: Path) -> bool:
    """Where not even the shared-memory index of the write-ahead log fits, SQLite speaks of an I/O error."""
    return folder.is_dir() and shutil.disk_usage(folder).free < WAL_INDEX_BYTES
