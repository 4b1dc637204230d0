"""Shared memory: the decode rank's slots are an anonymous file, which the prefill rank opens through /proc.

It has no name in the file system, so nothing is left behind however either side ends. Linux, one host, one PID
namespace and one user: where that does not hold, the other side is refused with a message that says so.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.refengine.transfer.transports.base import SlotSizes, TransportError

_NEEDS = "shm needs both engines on one Linux host, in one PID namespace and of one user; tcp does not"


class ShmTransport:
    def window(self, sizes: SlotSizes) -> ShmWindow:
        return ShmWindow(sizes)

    def writer(self, offer: dict[str, Any]) -> ShmWriter:
        return ShmWriter(offer)

    def progress(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing beside windows and writers to let go of."""


class ShmWindow:
    """`name` is random and the file's own (`/proc/PID/fd`): so a prefill rank knows that it opened the right one."""

    def __init__(self, sizes: SlotSizes) -> None:
        self._sizes = sizes
        self._name = f"harness-kv-{secrets.token_hex(16)}"
        self._fd = os.memfd_create(self._name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._fd, sizes.total_bytes)
        # Whoever maps a file that then shrinks dies of SIGBUS.
        fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        self._map = mmap.mmap(self._fd, sizes.total_bytes)

    @property
    def offer(self) -> dict[str, Any]:
        return {**asdict(self._sizes), "pid": os.getpid(), "fd": self._fd, "name": self._name}

    def payload(self, slot: int, size: int, inline: bytes | None) -> bytes | memoryview:
        return memoryview(self._map)[self._sizes.span(slot, size)]

    def close(self) -> None:
        self._map.close()
        os.close(self._fd)


class ShmWriter:
    """Maps the offered file; raises TransportError where it cannot be opened, or is not the one that was offered."""

    def __init__(self, offer: dict[str, Any]) -> None:
        self.sizes = SlotSizes.of(offer)
        # Whatever else stands there may be a path to anything, or to nothing that can be a path.
        if odd := [name for name in ("pid", "fd") if type(offer.get(name)) is not int]:
            raise TransportError(f"{odd[0]} of an offer is {offer.get(odd[0])!r}; expected a number")
        path = f"/proc/{offer['pid']}/fd/{offer['fd']}"
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise TransportError(
                f"cannot open the decode rank's memory, {path}: {error.strerror}; {_NEEDS}"
            ) from error
        try:
            if (
                found := str(Path(f"/proc/self/fd/{fd}").readlink())
            ) != f"/memfd:{offer.get('name')} (deleted)":
                raise TransportError(f"{path} is not the decode rank's memory, but {found}; {_NEEDS}")
            self._map = _map_all(fd, self.sizes)
        finally:
            os.close(fd)

    def write(self, slot: int, payload: bytes) -> bytes | None:
        self._map[self.sizes.span(slot, len(payload))] = payload
        return None

    def written(self, slot: int) -> bool:
        return True

    def close(self) -> None:
        self._map.close()


def _map_all(fd: int, sizes: SlotSizes) -> mmap.mmap:
    if (found := os.fstat(fd).st_size) != sizes.total_bytes:
        raise TransportError(f"the decode rank's memory has {found} B, but it offered {sizes.total_bytes} B")
    if not fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
        raise TransportError("the decode rank's memory may still shrink: it is not sealed against that")
    try:
        return mmap.mmap(fd, sizes.total_bytes)
    except OSError as error:
        raise TransportError(f"the decode rank's memory cannot be written to: {error.strerror}") from error
