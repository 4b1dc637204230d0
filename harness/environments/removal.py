"""Remove an environment, or the base that none needs any more."""

from __future__ import annotations

from pathlib import Path

from harness.environments.folder import RECORD, list_environments, read_record
from harness.environments.workplace import held
from harness.errors import UsageError


def remove_environment(name: str, *, folder: Path) -> None:
    """Raises UsageError for a name that is not there, and for a base that environments still need."""
    there = sorted(record.parent.name for record in folder.glob(f"*/{RECORD}"))
    if name not in there:
        raise UsageError(
            f"{folder} has no environment {name!r}; allowed: {', '.join(there) or 'none is built'}"
        )
    needing = [e.name for e in list_environments(folder) if read_record(folder / e.name)["base"] == name]
    if needing:
        raise UsageError(f"{name} is needed by {', '.join(needing)}: remove these first")
    with held(
        folder, on_wait=lambda: print(f"another build is at work in {folder}; waiting for it")
    ) as workplace:
        workplace.remove(name)
