"""Which process owns a run, and whether it still lives.

A process id alone is not an identity: the kernel gives it out again. Together with the start time that
`/proc/<pid>/stat` tells (in clock ticks since boot) and the id of that boot it is. Failure rule: a process
that cannot be found, or is a zombie, is dead; nothing here raises for another process.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")

# Places in /proc/<pid>/stat after the closing bracket of the command name (proc(5), fields 3 and 22).
_STATE, _START_TIME = 0, 19

# A zombie still has its entry in /proc, but will never write again.
_DEAD_STATES = frozenset("ZXx")


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """One process of one boot of one machine."""

    pid: int
    start_ticks: int
    boot_id: str

    @classmethod
    def current(cls) -> Owner:
        """The calling process."""
        pid = os.getpid()
        stat = _stat(pid)
        return cls(pid=pid, start_ticks=stat[1] if stat else 0, boot_id=_boot_id())

    def alive(self) -> bool:
        """Whether exactly this process still runs (another one under its id does not count)."""
        stat = _stat(self.pid)
        if stat is None or self.boot_id != _boot_id():
            return False
        state, start_ticks = stat
        return state not in _DEAD_STATES and start_ticks == self.start_ticks


def _stat(pid: int) -> tuple[str, int] | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # the command name may hold spaces and brackets: the fields start after its last bracket
    fields = text.rpartition(")")[2].split()
    return fields[_STATE], int(fields[_START_TIME])


def _boot_id() -> str:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
