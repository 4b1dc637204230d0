"""What an engine may still read, by category and axis: numbers that only go down.

A baseline knows every call site by file, function and expression, so that lines may move, a site that wanders shows
as moved, and a new one is named. It is written by `harness ratchet scan --update`, and read back with every total
checked against its sites.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from harness.ratchet.sites import Category, Site


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Cell:
    """One number of the ratchet."""

    axis: str
    category: Category

    def __str__(self) -> str:
        return f"{self.axis} {self.category.told}"


# Of one cell: how often each (file, key) is there.
Places = Counter[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Increase:
    """A time when the numbers were let up, as a person explained it."""

    reason: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Baseline:
    cells: dict[Cell, Places] = field(default_factory=dict)
    increases: tuple[Increase, ...] = ()

    @classmethod
    def of(cls, sites: Iterable[Site], increases: tuple[Increase, ...] = ()) -> Baseline:
        cells: dict[Cell, Places] = {}
        for site in sites:
            cell = Cell(axis=site.axis, category=site.category)
            cells.setdefault(cell, Counter())[site.file, site.key] += 1
        return cls(cells, increases)

    def places(self, cell: Cell) -> Places:
        return self.cells.get(cell, Counter())


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """How one cell differs from its baseline. `new` are sites that it does not know; `gone` places that went."""

    cell: Cell
    before: int
    after: int
    new: tuple[Site, ...]
    gone: tuple[tuple[str, str], ...]

    @property
    def grew(self) -> bool:
        return self.after > self.before

    @property
    def shrank(self) -> bool:
        return self.after < self.before

    def __str__(self) -> str:
        return f"{self.cell} {self.before} -> {self.after}"


def compare(baseline: Baseline, sites: tuple[Site, ...]) -> list[Change]:
    """What differs, cell by cell: also where only places changed and the number stayed."""
    now = Baseline.of(sites)
    changes = []
    for cell in sorted({*baseline.cells, *now.cells}):
        before, after = baseline.places(cell), now.places(cell)
        if before == after:
            continue
        here = [site for site in sites if (site.axis, site.category) == (cell.axis, cell.category)]
        changes.append(
            Change(
                cell=cell,
                before=before.total(),
                after=after.total(),
                new=tuple(_unknown(here, before)),
                gone=tuple(sorted((before - after).elements())),
            )
        )
    return changes


def _unknown(sites: list[Site], known: Places) -> Iterable[Site]:
    """The sites beyond those that are known; of several alike in one function, the last."""
    left = Counter(known)
    for site in sites:
        place = (site.file, site.key)
        if left[place] > 0:
            left[place] -= 1
        else:
            yield site
