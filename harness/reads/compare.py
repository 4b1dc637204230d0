"""Two runs of the reads, row by row: which consumers read another source, with numbers and places. Pure.

Called by `harness reads compare` on the figures that `judge` left with each check.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.reads.words import Figures, in_words

# The figures of one run's rows, by check name; empty where the row could not be judged.
Rows = Mapping[str, Figures]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A row that reads another source: in words, before and after."""

    row: str
    before: str
    after: str
    changes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`compared` counts rows that both runs judged; `left_out` names those that one did not, with the reason.

    `stayed` are rows that a named change should have moved and that read what they read before; `unexplained`
    are those that moved without one.
    """

    before: str
    after: str
    compared: int
    moved: tuple[Moved, ...]
    stayed: tuple[str, ...]
    left_out: Mapping[str, str]

    @property
    def unexplained(self) -> tuple[str, ...]:
        return tuple(each.row for each in self.moved if not each.changes)

    @property
    def headline(self) -> str:
        """One sentence; says whether exactly the rows of the named changes moved."""
        count = f"{len(self.moved)} of {self.compared} rows changed their source"
        told = f"{count} from {self.before} to {self.after}"
        exact = self.moved and not (self.unexplained or self.stayed or self.left_out)
        return f"{told}: exactly the rows of {self._changes()}" if exact else told

    def _changes(self) -> str:
        numbers = sorted({number for each in self.moved for number in each.changes})
        return " and ".join(f"#{number}" for number in numbers)


def compare(before: Rows, after: Rows) -> Comparison:
    """What moved, by name: rows of one run come in no order."""
    names = sorted({*before, *after})
    judged = [name for name in names if before.get(name) and after.get(name)]
    moved = [name for name in judged if before[name]["source"] != after[name]["source"]]
    return Comparison(
        before=_version(before),
        after=_version(after),
        compared=len(judged),
        moved=tuple(_moved(name, before[name], after[name]) for name in moved),
        stayed=tuple(
            name
            for name in judged
            if name not in moved and (before[name]["changes"] or after[name]["changes"])
        ),
        left_out={name: _why(name, before, after) for name in names if name not in judged},
    )


def _moved(row: str, before: Figures, after: Figures) -> Moved:
    changes = tuple(sorted({*before["changes"], *after["changes"]}))
    return Moved(row=row, before=_seen(before), after=_seen(after), changes=changes)


def _seen(figures: Figures) -> str:
    return f"{in_words(figures)} ({figures['where']})" if figures["where"] else in_words(figures)


def _why(name: str, before: Rows, after: Rows) -> str:
    """Why a row stands in one run only."""
    for rows, which in ((before, "first"), (after, "second")):
        if name not in rows:
            return f"not in the {which} run"
        if not rows[name]:
            return f"an error in the {which} run"
    raise AssertionError(name)


def _version(rows: Rows) -> str:
    return next((str(figures["version"]) for figures in rows.values() if figures), "nothing")
