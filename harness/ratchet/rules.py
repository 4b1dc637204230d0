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
class Exemption:
    """Reads that are meant. Empty `function`, `text` and `axes` ask for nothing."""

    file: str
    reason: str
    mark: Mark
    function: str = ""
    text: str = ""
    axes: tuple[str, ...] = ()

    def covers(self, site: Site, line: str) -> bool:
        """Whether it speaks of `site`, which stands on `line`."""
        return (
            fnmatchcase(site.file, self.file)
            and self.function in ("", site.function, site.function.rpartition(".")[2])
            and self.text in line
            and (not self.axes or site.axis in self.axes)
        )


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
    def axis_of_any(self) -> dict[str, Axis]:
        """By the name that a `getattr` asks for."""
        return self.axis_of_live | self.axis_of_field
