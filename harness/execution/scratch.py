"""Scratch folders: the TMPDIR of one attempt, removed after it.

They lie in the system's temporary folder and not under `reports/`, because a Unix socket made inside one
must keep its path below 108 bytes. A harness that was killed cannot remove its own, so every run first sweeps
those that no living harness holds locked. Making, locking and sweeping happen under a lock of their parent.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from harness.errors import InfraError


class Scratch:
    """One folder, held locked by this process until `remove()`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def remove(self) -> None:
        """Delete it with all that the attempt left in it."""
        shutil.rmtree(self.path, ignore_errors=True)  # the next sweep meets what is stubborn again
        os.close(self._descriptor)


def make_scratch() -> Scratch:
    """A new empty folder; InfraError when the machine cannot give one."""
    try:
        with _locked_parent() as parent:
            path = Path(tempfile.mkdtemp(dir=parent, prefix=""))
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        raise InfraError("scratch", f"no temporary folder: {error}") from error
    return Scratch(path, descriptor)


def sweep_scratch() -> list[Path]:
    """Remove the folders that no living process holds; returns them. Leaves alone what it may not open, and
    what is no folder."""
    with contextlib.suppress(OSError), _locked_parent() as parent:
        return [path for path in sorted(parent.iterdir()) if _swept(path)]
    return []


def _swept(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        shutil.rmtree(path, ignore_errors=True)
        return True
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _locked_parent() -> Iterator[Path]:
    """`<tmp>/harness-<uid>`, locked; OSError when it is someone else's."""
    parent = Path(tempfile.gettempdir()) / f"harness-{os.getuid()}"
    parent.mkdir(mode=0o700, exist_ok=True)
    if parent.is_symlink() or parent.stat().st_uid != os.getuid():
        raise PermissionError(f"{parent} belongs to someone else")
    descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield parent
    finally:
        os.close(descriptor)
