"""The rules of a scan: what is server args, what is live, which fields are whose axis, and what is exempt.

Plain values, sent to worker processes as they are. `rule_file` reads them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cached_property

from harness.errors import Mark
from harness.ratchet.sites import Site


class OnUnparsed(StrEnum):
    """Whether a file that does not parse fails the scan; it is told either way."""

    FAIL = "fail"
    REPORT = "report"


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One live-shadowed size.

    `fields` are its names on server args; `live` the names that live topology and a per-worker state give it;
    `live_calls` functions that answer it. `instead` is what a read should say, `per_worker` what a copy should.
    """

    name: str
    fields: tuple[str, ...]
    live: tuple[str, ...] = ()
    live_calls: tuple[str, ...] = ()
    instead: str
    per_worker: str


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where reads are meant: in files and functions (globs), on lines that hold `text`."""

    file: str
    mark: Mark
    function: str = "*"
    text: str = ""

    def holds(self, site: Site, line: str) -> bool:
        """Whether `site`, which stands on `line`, is there."""
        names = (site.function, site.function.rpartition(".")[2])
        return (
            fnmatchcase(site.file, self.file)
            and any(fnmatchcase(name, self.function) for name in names)
            and self.text in line
        )

    def __str__(self) -> str:
        parts = (self.file, self.function, self.text)
        return "::".join(parts if self.text else parts[:2] if self.function != "*" else parts[:1])


@dataclass(frozen=True, kw_only=True)
class Exemption:
    """Reads that are meant, for one reason, of some axes or (empty) of all."""

    places: tuple[Place, ...]
    reason: str
    mark: Mark
    axes: tuple[str, ...] = ()

    def place_of(self, site: Site, line: str) -> Place | None:
        """Which of its places holds `site`; None where it does not speak of it."""
        if self.axes and site.axis not in self.axes:
            return None
        return next((place for place in self.places if place.holds(site, line)), None)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """All of a rules file. The tables below the fields answer the analysis, which asks for every name it meets."""

    axes: tuple[Axis, ...]
    args_names: frozenset[str]
    args_types: frozenset[str] = frozenset()
    args_getters: frozenset[str] = frozenset()
    same_args: frozenset[str] = frozenset()
    live_getters: frozenset[str] = frozenset()
    state_names: frozenset[str] = frozenset()
    state_types: frozenset[str] = frozenset()
    worker_names: frozenset[str] = frozenset()
    worker_classes: tuple[str, ...] = ()
    init_calls: frozenset[str] = frozenset()
    setup_calls: frozenset[str] = frozenset()
    roots: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    unparsed: OnUnparsed = OnUnparsed.FAIL
    exemptions: tuple[Exemption, ...] = field(default=())

    @cached_property
    def axis_of_field(self) -> dict[str, Axis]:
        return {name: axis for axis in self.axes for name in axis.fields}

    @cached_property
    def axis_of_live(self) -> dict[str, Axis]:
        return {name: axis for axis in self.axes for name in axis.live}

    @cached_property
    def axis_of_call(self) -> dict[str, Axis]:
        return {name: axis for axis in self.axes for name in axis.live_calls}

    @cached_property
    def takes_seed(self) -> frozenset[str]:
        """Calls that make groups, or the state that describes them: their arguments come from nowhere else."""
        return self.setup_calls | self.init_calls | self.state_types

    @cached_property
    def axis_of_any(self) -> dict[str, Axis]:
        """By the name that a `getattr` asks for."""
        return self.axis_of_live | self.axis_of_field
