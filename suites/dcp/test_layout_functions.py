"""What the other tests of this suite could ask of their target, and what they could not.

A package does not have a function for every property. Tests that need a missing one are deselected, so this test
holds the list against `_layout_functions.yaml`: neither a function that a release loses nor one that it gains goes
unseen, and neither does a function that no test asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from functions_table import check_functions, disagreements, row_of

from harness.topology import KVLayout
from harness.topology.targets.layout import ALL_FUNCTIONS, LayoutTarget

TABLE = Path(__file__).with_name("_layout_functions.yaml")


def problems(target: LayoutTarget, checked: frozenset[str]) -> list[str]:
    """What the table, the target and the collected tests do not agree about."""
    row = row_of(TABLE, target.name)
    if row is None:
        return [f"{TABLE.name} has no row {target.name!r}"]
    layout = KVLayout(dcp_size=4, page_size=16)
    pages = {layout.page_size: "of one rank", layout.widened_page_size: "widened"}
    found = pages.get(target.admission_page(layout), "of neither kind")
    return [
        *disagreements(row["lacks"], every=ALL_FUNCTIONS, has=target.functions, checked=checked),
        *([f"requests are admitted by pages {found}"] if found != row["admission_page"] else []),
    ]


def test_functions(
    layout_target: LayoutTarget,
    checked_functions: frozenset[str],
    record_property: Callable[[str, object], None],
) -> None:
    check_functions(
        layout_target.name,
        problems(layout_target, checked_functions),
        table=TABLE,
        lacking=ALL_FUNCTIONS - layout_target.functions,
        checked=checked_functions,
        record_property=record_property,
    )
