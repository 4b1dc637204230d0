"""What a scan finds: call sites, and files that could not be read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Category(StrEnum):
    """How a read goes past the source it should come from. In the order of a report, mildest first.

    One expression has one category: where several fit, the later one here, since its repair repairs the others.
    """

    DIRECT = "direct"
    ALIASED = "aliased"
    DEFENSIVE = "defensive"
    COPIED = "copied"
    EARLY = "early"

    @property
    def told(self) -> str:
        """The word of a totals line, where an aliased read has always been an `alias`."""
        return "alias" if self is Category.ALIASED else self.value

    @property
    def rank(self) -> int:
        return list(Category).index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One read. `file` is relative to the scanned root; line and column count characters from 1."""

    file: str
    line: int
    column: int
    category: Category
    axis: str
    function: str
    expression: str
    kept_as: str
    instead: str

    @property
    def words(self) -> str:
        """The read as a report names it."""
        return f"{self.expression} kept as {self.kept_as}" if self.kept_as else self.expression

    @property
    def key(self) -> str:
        """What a baseline knows the site by: stable when lines above it come or go."""
        return f"{self.function}: {self.words}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unparsed:
    """A file that mentions topology and is no Python that this interpreter reads."""

    file: str
    line: int
    column: int
    why: str
