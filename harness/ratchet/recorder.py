"""Collects the sites of one file: one category for an expression, at the place an editor would open."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from harness.ratchet.rules import Axis
from harness.ratchet.scopes import Position
from harness.ratchet.sites import Category, Site


@dataclass(slots=True)
class Recorder:
    """Walked code is walked more than once, so a site is known by its place; the highest category stays."""

    file: str
    lines: list[str]
    found: dict[Position, Site] = field(default_factory=dict)

    def note(
        self, node: ast.expr, category: Category, axis: Axis, *, function: str, kept_as: str = ""
    ) -> None:
        at = (node.lineno, node.col_offset)
        known = self.found.get(at)
        if known is not None and known.category.rank >= category.rank:
            return
        self.found[at] = Site(
            file=self.file,
            line=node.lineno,
            column=self._column(node),
            category=category,
            axis=axis.name,
            function=function,
            expression=ast.unparse(node).replace("\n", " "),
            kept_as=kept_as,
            instead=_instead(category, axis),
        )

    def _column(self, node: ast.expr) -> int:
        """In characters from 1: `ast` counts bytes of UTF-8 from 0."""
        line = self.lines[node.lineno - 1]
        return len(line.encode()[: node.col_offset].decode(errors="replace")) + 1

    def sites(self) -> list[Site]:
        return [self.found[at] for at in sorted(self.found)]


def _instead(category: Category, axis: Axis) -> str:
    match category:
        case Category.EARLY:
            return "the same, after the initialisation call"
        case Category.COPIED:
            return f"{axis.per_worker} where it is used, and no copy"
        case _:
            return axis.instead
