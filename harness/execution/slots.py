"""Which devices of this machine belong to this run: one locked file per device, shared by all runs.

Two `harness run` at once must not put two jobs on one slot. A lock is an flock, so the kernel lets go of it
when its run dies, however it dies. The kernel tells nobody when a lock is let go; a run that waits for
another one's devices therefore looks again every `LOOK_AGAIN_SECONDS`.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.errors import InfraError

# Jobs take half a minute and more; a quarter of a second lost between two runs is not noticed.
LOOK_AGAIN_SECONDS = 0.25


class SlotLocks:
    """The locks that this run holds. Descriptors are not inherited: a job never holds its own lease.

    Raises InfraError where the folder or a file in it cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}
        with _explained(folder):
            folder.mkdir(parents=True, exist_ok=True)

    def take(self, devices: Iterable[str]) -> frozenset[str]:
        """Lock those of the devices that nobody holds; never waits."""
        return frozenset(device for device in devices if self._take(device))

    def release(self, devices: Iterable[str]) -> None:
        """Let go of devices held by this run."""
        for device in devices:
            os.close(self._held.pop(device))

    def close(self) -> None:
        """Let go of everything."""
        self.release(list(self._held))

    def _take(self, device: str) -> bool:
        path = self._folder / device.replace(":", "-")
        with _explained(path):
            # For reading, as an flock needs no more: another user's file is as good as one's own.
            descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._held[device] = descriptor
        return True


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InfraError("slots", f"{path} cannot be locked: {error.strerror}") from error
