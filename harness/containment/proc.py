"""Reading `/proc`: who descends from whom, and which signals a process catches.

Pure reads of a table that changes meanwhile: a process that vanishes between two reads is left out, never
an error. Zombies count as ended, because a slow PID 1 may leave them visible for long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRow:
    """One process as `/proc/<pid>/stat` shows it; `start` is in clock ticks since boot."""

    pid: int
    parent: int
    state: str
    start: int

    @property
    def living(self) -> bool:
        """False for a zombie, whose code no longer runs and whose memory is freed."""
        return self.state not in {"Z", "X"}


def read_process(pid: int) -> ProcessRow | None:
    """The process's row, or None when there is no such process (any more)."""
    try:
        stat = (PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name in parentheses may hold spaces and parentheses: fields count from the last one.
    fields = stat.rpartition(")")[2].split()
    return ProcessRow(pid=pid, parent=int(fields[1]), state=fields[0], start=int(fields[19]))


def process_table() -> dict[int, ProcessRow]:
    """Every process visible to this one, by pid."""
    rows = (read_process(int(entry.name)) for entry in PROC.iterdir() if entry.name.isdigit())
    return {row.pid: row for row in rows if row is not None}


def children_of(pid: int) -> list[int]:
    """Direct children, zombies included, in order of pid."""
    return sorted(row.pid for row in process_table().values() if row.parent == pid)


def descendants_of(pid: int, table: Mapping[int, ProcessRow] | None = None) -> list[int]:
    """Living processes whose chain of parents reaches `pid`, in order of pid; without `pid` itself."""
    rows = process_table() if table is None else table
    children: dict[int, list[int]] = {}
    for row in rows.values():
        children.setdefault(row.parent, []).append(row.pid)
    found: list[int] = []
    to_visit = [pid]
    while to_visit:
        below = children.get(to_visit.pop(), [])
        found.extend(below)
        to_visit.extend(below)
    return sorted(child for child in found if rows[child].living)


def catches(pid: int, signum: int) -> bool:
    """Whether the process has a handler of its own for the signal (`SigCgt`), so that sending it is safe."""
    try:
        status = (PROC / str(pid) / "status").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    for line in status.splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signum - 1) & 1)
    return False
