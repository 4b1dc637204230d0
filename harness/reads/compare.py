"""Two runs of the reads, row by row: which consumers read another source, with numbers and places. Pure.

Called by `harness reads compare` on the figures that `judge` left with each check.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from harness.reads.words import Figures, in_short, in_words

# The figures of one run's rows, by check name; empty where the row could not be judged.
Rows = Mapping[str, Figures]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A row that reads another source: `before` and `after` in short, `seen` whole and with places."""

    row: str
    before: str
    after: str
    seen: tuple[str, str]
    changes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`compared` counts the rows whose consumer is in both runs; `left_out` names rows that one did not judge, with
    the reason.

    `moved` read another source, `appeared` and `vanished` are consumers that only the second or first has. `stayed`
    are rows that a named change should have moved and that read what they read before; `unexplained` moved,
    appeared or vanished without one.
    """

    before: str
    after: str
    compared: int
    moved: tuple[Moved, ...]
    appeared: tuple[Moved, ...]
    vanished: tuple[Moved, ...]
    stayed: tuple[str, ...]
    left_out: Mapping[str, str]

    @property
    def unexplained(self) -> tuple[str, ...]:
        return tuple(each.row for each in self.differing if not each.changes)

    @property
    def differing(self) -> tuple[Moved, ...]:
        """By name, whatever they did."""
        return tuple(sorted(self.moved + self.appeared + self.vanished, key=lambda each: each.row))

    @property
    def headline(self) -> str:
        """One sentence; says whether exactly the rows of the named changes differ."""
        told = f"{len(self.moved)} of {self.compared} rows changed their source from {self.before} to {self.after}"
        for rows, did in ((self.appeared, "appeared"), (self.vanished, "vanished")):
            if rows:
                told += f", {len(rows)} {did}"
        exact = self.moved and not (self.unexplained or self.stayed or self.left_out)
        return f"{told}: exactly the rows of {self._changes()}" if exact else told

    def _changes(self) -> str:
        numbers = sorted({number for each in self.differing for number in each.changes})
        return " and ".join(f"#{number}" for number in numbers)


def compare(before: Rows, after: Rows, *, names: tuple[str, str]) -> Comparison:
    """What moved, by name: rows of one run come in no order. `names` are what people call the two engines."""
    rows = sorted({*before, *after})
    judged = [row for row in rows if before.get(row) and after.get(row)]
    differ = [row for row in judged if before[row]["source"] != after[row]["source"]]
    appeared = [row for row in differ if before[row]["absent"]]
    vanished = [row for row in differ if after[row]["absent"]]
    nowhere = [row for row in judged if before[row]["absent"] and after[row]["absent"]]

    def moved(chosen: Collection[str]) -> tuple[Moved, ...]:
        return tuple(_moved(row, before[row], after[row]) for row in chosen)

    return Comparison(
        before=names[0],
        after=names[1],
        compared=len(judged) - len(appeared) - len(vanished) - len(nowhere),
        moved=moved([row for row in differ if row not in appeared and row not in vanished]),
        appeared=moved(appeared),
        vanished=moved(vanished),
        stayed=tuple(
            row for row in judged if row not in differ and (before[row]["changes"] or after[row]["changes"])
        ),
        left_out={row: _why(row, before, after) for row in rows if row not in judged},
    )


def _moved(row: str, before: Figures, after: Figures) -> Moved:
    changes = tuple(sorted({*before["changes"], *after["changes"]}))
    seen = (_seen(before), _seen(after))
    return Moved(row=row, before=in_short(before), after=in_short(after), seen=seen, changes=changes)


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
