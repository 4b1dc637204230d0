"""SIGINT, SIGTERM and SIGHUP as something select() can wait for, while a run goes on."""

from __future__ import annotations

import os
import signal
from types import FrameType, TracebackType

# Ctrl-C, a service manager, a terminal that was closed.
INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Within the block these signals only make `fd` readable; a SIGHUP that is ignored (`nohup`) stays ignored.

    Main thread only; handlers are put back.
    """

    def __enter__(self) -> Interrupts:
        self.fd, self._write = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write, False)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._handlers = {
            signum: signal.signal(signum, _only_wake)
            for signum in INTERRUPTS
            if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN
        }
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for signum, handler in self._handlers.items():
            signal.signal(signum, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self.fd)
        os.close(self._write)

    def count(self) -> int:
        """How many of them came since the last call; for after `fd` turned readable."""
        return sum(byte in INTERRUPTS for byte in os.read(self.fd, 4096))


def _only_wake(signum: int, frame: FrameType | None) -> None:
    """Without a handler in Python the wakeup fd would not be written."""
