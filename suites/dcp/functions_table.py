"""What a target can be asked, held both ways against a table of what each release lacks.

Tests that need a function which a package does not have are deselected. So neither a function that a release loses nor
one that it gains may go unseen, and neither may one that no test asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import yaml


def row_of(table: Path, target: str) -> dict[str, Any] | None:
    """The target's row of the table; None where it has none."""
    row: dict[str, Any] | None = yaml.safe_load(table.read_text()).get(target)
    return row


def disagreements(
    declared: Collection[str], *, every: frozenset[str], has: frozenset[str], checked: frozenset[str]
) -> list[str]:
    """What disagrees: functions `declared` as lacking, those that a target `has`, and those that tests ask for."""
    lacking = every - has
    return [
        *(f"the table says there is one for: {name}" for name in sorted(lacking - set(declared))),
        *(f"the table says there is none for: {name}" for name in sorted(set(declared) - lacking)),
        *(f"no test asks for: {name}" for name in sorted(has - checked)),
    ]


def check_functions(
    who: str,
    found: list[str],
    *,
    table: Path,
    lacking: Collection[str],
    checked: Collection[str],
    record_property: Callable[[str, object], None],
) -> None:
    """Report the check `functions` of target `who`; fails where something was `found`."""
    message = f"{who}: {len(checked)} functions checked"
    message += f"; no function for: {'; '.join(sorted(lacking))}" if lacking else ""
    if found:
        message += f". Not as declared in {table.name}: {'; '.join(found)}"
    check = {
        "name": "functions",
        "outcome": "failed" if found else "passed",
        "message": message,
        "figures": {"checked": len(checked), "lacking": len(lacking)},
        "seconds": 0.0,
    }
    record_property("harness_check", check)
    assert not found, message
