"""The folder of environments while something changes in it: one builder at a time, and no half-made folders.

A folder in the making has a name of its own and gets its real one in one rename. What an earlier builder left when
it was killed is removed by the next. That is safe because nothing can still write there: the lock is inherited by
every process a builder starts, so it is free only when the last of them has ended.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.errors import UsageError

LOCK = ".lock"
MAKING = ".making-"


class Workplace:
    """The folder, held. `lock` is the descriptor that child processes have to inherit."""

    def __init__(self, folder: Path, lock: int) -> None:
        self.folder = folder
        self.lock = lock

    @property
    def scratch(self) -> Path:
        """For temporary files; on the same disk, gone at the end."""
        return self.folder / f"{MAKING}scratch"

    def making(self, name: str) -> Path:
        """Where to build that environment."""
        return self.folder / f"{MAKING}{name}"

    def finish(self, name: str) -> Path:
        """Give what was built its name; whatever had it before is gone then."""
        place = self.folder / name
        if place.exists():
            self.remove(name)
        self.making(name).rename(place)
        return place

    def remove(self, name: str) -> None:
        """Take its name away first: who looks meanwhile finds the whole or nothing."""
        doomed = self.making(f"removed-{name}")
        (self.folder / name).rename(doomed)
        shutil.rmtree(doomed)

    def sweep(self) -> None:
        """Remove what is in the making, or was."""
        for left in self.folder.glob(f"{MAKING}*"):
            shutil.rmtree(left)

    def need(self, gib: float, *, what: str) -> None:
        """Raises UsageError where the disk has less."""
        free = shutil.disk_usage(self.folder).free / 2**30
        if free < gib:
            raise UsageError(
                f"{what} needs about {gib:.1f} GiB and {self.folder} has {free:.1f} GiB free; "
                "free some space, or choose another folder with HARNESS_ENVS"
            )


@contextmanager
def held(folder: Path, *, on_wait: Callable[[], None]) -> Iterator[Workplace]:
    """Hold the folder; waits for another builder after telling so once. Raises UsageError where it cannot be
    written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be written: {error.strerror}; choose another with HARNESS_ENVS"
        ) from error
    try:
        _take(lock, on_wait=on_wait)
        workplace = Workplace(folder, lock)
        workplace.sweep()
        try:
            yield workplace
        finally:
            workplace.sweep()
    finally:
        os.close(lock)


def _take(lock: int, *, on_wait: Callable[[], None]) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        on_wait()
        fcntl.flock(lock, fcntl.LOCK_EX)
