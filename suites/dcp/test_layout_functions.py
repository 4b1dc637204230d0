"""What the other tests of this suite could ask of their target, and what they could not.

A package does not have a function for every property. Tests that need a missing one are deselected, so this test
holds the list against `_layout_functions.yaml`: neither a function that a release loses nor one that it gains goes
unseen, and neither does a function that no test asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import yaml

from harness.topology import KVLayout
from harness.topology.targets.layout import ALL_FUNCTIONS, LayoutTarget

TABLE = Path(__file__).with_name("_layout_functions.yaml")


def problems(target: LayoutTarget, checked: frozenset[str]) -> list[str]:
    """What the table, the target and the collected tests do not agree about."""
    row = yaml.safe_load(TABLE.read_text()).get(target.name)
    if row is None:
        return [f"{TABLE.name} has no row {target.name!r}"]
    declared, lacking = set(row["lacks"]), ALL_FUNCTIONS - target.functions
    layout = KVLayout(dcp_size=4, page_size=16)
    pages = {layout.page_size: "of one rank", layout.widened_page_size: "widened"}
    found = pages.get(target.admission_page(layout), "of neither kind")
    return [
        *(f"the table says there is one for: {name}" for name in sorted(lacking - declared)),
        *(f"the table says there is none for: {name}" for name in sorted(declared - lacking)),
        *(f"no test asks for: {name}" for name in sorted(target.functions - checked)),
        *([f"requests are admitted by pages {found}"] if found != row["admission_page"] else []),
    ]


def test_functions(
    layout_target: LayoutTarget,
    checked_functions: frozenset[str],
    record_property: Callable[[str, object], None],
) -> None:
    lacking = sorted(ALL_FUNCTIONS - layout_target.functions)
    found = problems(layout_target, checked_functions)
    message = f"{layout_target.name}: {len(checked_functions)} functions checked"
    message += f"; no function for: {'; '.join(lacking)}" if lacking else ""
    if found:
        message += f". Not as declared in {TABLE.name}: {'; '.join(found)}"
    check = {
        "name": "functions",
        "outcome": "failed" if found else "passed",
        "message": message,
        "figures": {"checked": len(checked_functions), "lacking": len(lacking)},
        "seconds": 0.0,
    }
    record_property("harness_check", check)
    assert not found, message
