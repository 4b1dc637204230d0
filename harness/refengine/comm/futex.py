"""A meeting point for processes that share memory: nobody spins, and whoever comes last wakes the rest.

Phases of a meeting: a rank adds one to the counter of this round and, if that made it complete, wakes all
sleepers; both happen in one system call (FUTEX_WAKE_OP, `man 2 futex`), because Python has no atomic add.
A rank that came early sleeps until the counter is complete. Rounds use three counters in turn, so that one
can be set back to zero while nobody looks at it.
Failure rule: a sleeper looks up once a second and raises `CommError` where its parent is gone. It does not
notice a dead peer: whoever started the ranks ends them together.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import sys

from harness.errors import UsageError
from harness.refengine.comm.base import CommError

# x86-64 numbers, from <asm/unistd_64.h> and <linux/futex.h>.
_SYS_FUTEX = 202
_FUTEX_WAIT = 0
_FUTEX_WAKE_OP = 5
_FUTEX_OP_ADD = 1
_FUTEX_OP_CMP_EQ = 0
_EVERYBODY = 2**31 - 1

# Often enough that orphans end soon, seldom enough that eight idle ranks cost nothing.
_LOOK_UP_SECONDS = 1

# A round's counter is complete, being counted, or being set back to zero; never two of these at once.
_NUM_COUNTERS = 3
# Counters lie on cache lines of their own.
_COUNTER_BYTES = 64

COUNTERS_BYTES = _NUM_COUNTERS * _COUNTER_BYTES


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


def require_futex() -> None:
    """Raise UsageError off Linux x86-64: system call numbers and the order of stores are that machine's."""
    machine = platform.machine()
    if sys.platform != "linux" or machine not in ("x86_64", "AMD64"):
        raise UsageError(
            f"--comm shm needs Linux on x86-64, found {sys.platform} on {machine}: use --comm gloo"
        )


class MeetingPoint:
    """One rank's view of the counters at the start of `memory`, which must be zero at first.

    `size` is at most 2047: the kernel compares with a number of 12 bits, one of them the sign.
    """

    def __init__(self, memory: mmap.mmap, *, size: int, rank: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.syscall.argtypes = [ctypes.c_long, ctypes.c_void_p, ctypes.c_int, ctypes.c_int,
                                 ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]  # fmt: skip
        libc.syscall.restype = ctypes.c_long
        self._syscall = libc.syscall
        self._memory = memory  # keeps the addresses below alive
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._addresses = [start + i * _COUNTER_BYTES for i in range(_NUM_COUNTERS)]
        self._counters = [ctypes.c_int.from_address(address) for address in self._addresses]
        self._size = size
        self._resets = rank == 0
        self._round = 0
        self._parent = os.getppid()
        # "add 1; if it was size - 1 before, wake who waits on it"
        self._arrival = _FUTEX_OP_ADD << 28 | _FUTEX_OP_CMP_EQ << 24 | 1 << 12 | (size - 1)

    def meet(self) -> None:
        """Return once all ranks came to this round. What each wrote before, all can read after.

        Raises CommError where this process lost its parent while it waited.
        """
        this = self._round % _NUM_COUNTERS
        self._round += 1
        if self._resets:
            # Used two rounds ago: all came to the round since then, so none still looks at it. None can
            # arrive at it before this rank has arrived here.
            self._counters[self._round % _NUM_COUNTERS].value = 0
        address = self._addresses[this]
        self._call(address, _FUTEX_WAKE_OP, 0, _EVERYBODY, address, self._arrival)
        counter = self._counters[this]
        while (arrived := counter.value) != self._size:
            self._sleep(address, arrived)

    def _sleep(self, address: int, arrived: int) -> None:
        """Until woken by the last to arrive; at once where the counter is no longer at `arrived`."""
        limit = _Timespec(_LOOK_UP_SECONDS, 0)
        self._call(address, _FUTEX_WAIT, arrived, ctypes.addressof(limit), None, 0)
        if os.getppid() != self._parent:
            raise CommError(
                f"parent {self._parent} is gone; {arrived} of {self._size} ranks had come to meet"
            )

    def _call(
        self, address: int, operation: int, value: int, extra: int, other: int | None, third: int
    ) -> None:
        if self._syscall(_SYS_FUTEX, address, operation, value, extra, other, third) < 0:
            code = ctypes.get_errno()
            if code not in (errno.EAGAIN, errno.EINTR, errno.ETIMEDOUT):
                raise OSError(code, f"futex: {os.strerror(code)}")
