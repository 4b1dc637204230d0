"""The expectation: which source each consumer reads, by role and version, as people wrote it beside the suite.

`load_table` reads the YAML and holds it against the registered consumers, so that neither has a row that the
other lacks. Every mistake is told with file:line:column, all of one load together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import Mark, SourceError, SourceErrors, UsageError
from harness.reads.registry import Consumer, Kind, Role
from harness.reads.sources import GATED_BY, Source
from harness.suites.yaml_marks import MarkedDict, read_yaml

ABSENT = "absent"
GENERATIONS = ("live", "published")

_ROW_KEYS = ("what", "change", "both", "target", "draft", "known_open", "note")
_ALLOWED = f"{', '.join(Source)}, SOURCE{GATED_BY}SOURCE, none, constant N, or {{absent: REASON}}"
_CONSTANT = re.compile(r"constant (\d+|True|False)")


@dataclass(frozen=True, slots=True)
class Expected:
    """One cell: a source as `name_source` writes it, or `absent` with the reason."""

    source: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One consumer. `changes` are the upstream changes that moved what it reads; `known_open` what upstream left."""

    consumer: str
    what: str
    changes: Mapping[Role, tuple[int, ...]]
    expected: Mapping[Role, Mapping[str, Expected]]
    known_open: Mapping[Role, str]
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """All rows; `versions` is each column's generation of the package's interface, in the order written."""

    path: Path
    versions: Mapping[str, str]
    rows: Mapping[str, Row]

    def column(self, version: str, generation: str) -> str:
        """The column that a package of this version is held against.

        Its own, else the newest of its generation that is not newer, else the oldest of it. A checkout that does
        not know its version (0.0.0) is held against the newest. Raises UsageError where no column fits.
        """
        if version in self.versions:
            return version
        fitting = sorted((name for name, kind in self.versions.items() if kind == generation), key=_order)
        if not fitting:
            raise UsageError(
                f"{self.path}: no column is of the generation {generation!r} of SGLang {version}"
            )
        if not any(_order(version)):
            return fitting[-1]
        older = [name for name in fitting if _order(name) <= _order(version)]
        return older[-1] if older else fitting[0]

    def moved(self, older: str, newer: str) -> list[tuple[str, Role]]:
        """The rows that read another source in `newer` than in `older`; both must be columns."""
        return [
            (name, role)
            for name, row in self.rows.items()
            for role, cells in row.expected.items()
            if cells[older].source != cells[newer].source
        ]


def load_table(path: Path, consumers: Mapping[str, Consumer]) -> Table:
    """Raises SourceError, or SourceErrors for several mistakes, and UsageError for consumers without a row."""
    tree, errors = read_yaml(path)
    if not isinstance(tree, MarkedDict):
        raise SourceError(Mark(path, 1, 1), "not a table; allowed: a mapping of versions and rows")
    reader = _Reader(path, consumers, list(errors))
    table = reader.table(tree)
    if reader.errors:
        raise reader.errors[0] if len(reader.errors) == 1 else SourceErrors(reader.errors)
    if missing := [name for name in consumers if name not in table.rows]:
        raise UsageError(f"{path}: no row for {', '.join(missing)}")
    return table


def _order(version: str) -> tuple[int, ...]:
    """0.5.19.dev3+g1 → (0, 5, 19); what is no version sorts first."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


@dataclass(slots=True)
class _Reader:
    """Reads one file; notes what is wrong and reads on."""

    path: Path
    consumers: Mapping[str, Consumer]
    errors: list[SourceError]
    versions: dict[str, str] = field(default_factory=dict)

    def table(self, tree: MarkedDict) -> Table:
        self._refuse_unknown(tree, ("versions", "rows"), "")
        for name, generation in self._mapping(tree, "versions", "").items():
            if generation not in GENERATIONS:
                self._wrong(tree["versions"], name, "versions", f"allowed: {', '.join(GENERATIONS)}")
            self.versions[name] = str(generation)
        rows = self._mapping(tree, "rows", "")
        return Table(
            path=self.path,
            versions=self.versions,
            rows={name: self._row(rows, name) for name in rows if self._is_known(rows, name)},
        )

    def _is_known(self, rows: MarkedDict, name: str) -> bool:
        if name in self.consumers and isinstance(rows[name], MarkedDict):
            return True
        message = (
            "not a row; allowed: a mapping" if name in self.consumers else "no such consumer is registered"
        )
        self._note(rows.key_marks[name], message, f"rows.{name}")
        return False

    def _row(self, rows: MarkedDict, name: str) -> Row:
        row, where, consumer = rows[name], f"rows.{name}", self.consumers[name]
        self._refuse_unknown(row, _ROW_KEYS, where)
        if not isinstance(row.get("what"), str):
            self._note(row.mark, "says not what is read; allowed: what: TEXT", where)
        return Row(
            consumer=name,
            what=str(row.get("what")),
            changes=self._changes(row, where, consumer),
            expected=dict(self._roles(row, where, consumer)),
            known_open=dict(self._open(row, where, consumer)),
            note=str(row.get("note", "")),
        )

    def _changes(self, row: MarkedDict, where: str, consumer: Consumer) -> dict[Role, tuple[int, ...]]:
        """By role; a change that is written without one is that of all roles."""
        if isinstance(row.get("change"), MarkedDict):
            own = self._of_roles(row, "change", where, consumer)
            return {
                role: tuple(self._numbers(row["change"], role, f"{where}.change")) if role in own else ()
                for role in consumer.roles
            }
        shared = tuple(self._numbers(row, "change", where)) if "change" in row else ()
        return dict.fromkeys(consumer.roles, shared)

    def _numbers(self, parent: MarkedDict, key: str, where: str) -> Iterator[int]:
        value = parent[key]
        for number in value if isinstance(value, list) else [value]:
            if type(number) is int:
                yield number
            else:
                self._wrong(parent, key, where, "allowed: the number of a change, or a list of them")

    def _roles(
        self, row: MarkedDict, where: str, consumer: Consumer
    ) -> Iterator[tuple[Role, dict[str, Expected]]]:
        if "both" in row and ("target" in row or "draft" in row):
            self._note(
                row.key_marks["both"], "stands beside a single role; allowed: one way to say it", where
            )
        shared = self._cells(row, "both", where, consumer.kind) if "both" in row else None
        for role in Role:
            key = "both" if "both" in row else role.value
            if role in consumer.roles and key in row:
                yield role, shared or self._cells(row, key, where, consumer.kind)
            elif role in consumer.roles:
                self._note(row.mark, f"says nothing of the role {role.value}", where)
            elif key in row:
                self._note(row.key_marks[key], f"is not driven as {role.value}", f"{where}.{key}")

    def _cells(self, row: MarkedDict, key: str, where: str, kind: Kind) -> dict[str, Expected]:
        cells = self._mapping(row, key, where)
        for version in cells:
            if version not in self.versions:
                known = ", ".join(self.versions)
                self._note(
                    cells.key_marks[version],
                    f"is no version of the table; there are {known}",
                    f"{where}.{key}",
                )
        for version in self.versions:
            if version not in cells:
                self._note(cells.mark, f"says nothing of {version}", f"{where}.{key}")
        return {version: self._cell(cells, version, f"{where}.{key}", kind) for version in cells}

    def _cell(self, cells: MarkedDict, version: str, where: str, kind: Kind) -> Expected:
        value = cells[version]
        if isinstance(value, MarkedDict) and list(value) == [ABSENT] and isinstance(value[ABSENT], str):
            return Expected(ABSENT, value[ABSENT])
        if not isinstance(value, str):
            self._wrong(cells, version, where, f"allowed: {_ALLOWED}")
        elif kind is not Kind.FACT and not _is_source(value):
            self._wrong(cells, version, where, f"{value!r} is no source; allowed: {_ALLOWED}")
        return Expected(str(value))

    def _open(self, row: MarkedDict, where: str, consumer: Consumer) -> Iterator[tuple[Role, str]]:
        for role in self._of_roles(row, "known_open", where, consumer):
            reason = row["known_open"][role]
            if not isinstance(reason, str):
                self._wrong(row["known_open"], role, f"{where}.known_open", "allowed: the reason, as text")
            yield role, str(reason)

    def _of_roles(self, row: MarkedDict, key: str, where: str, consumer: Consumer) -> list[Role]:
        """The roles that an optional mapping of a row speaks of."""
        mapping = self._mapping(row, key, where) if key in row else MarkedDict(row.mark)
        for name in mapping:
            if name not in consumer.roles:
                allowed = ", ".join(consumer.roles)
                self._note(
                    mapping.key_marks[name], f"is not driven; allowed: {allowed}", f"{where}.{key}.{name}"
                )
        return [role for role in consumer.roles if role in mapping]

    def _mapping(self, parent: MarkedDict, key: str, where: str) -> MarkedDict:
        value = parent.get(key)
        if isinstance(value, MarkedDict):
            return value
        self._wrong(parent, key, where, "is no mapping; allowed: a mapping")
        return MarkedDict(parent.mark)

    def _refuse_unknown(self, mapping: MarkedDict, allowed: tuple[str, ...], where: str) -> None:
        for key in mapping:
            if key not in allowed:
                self._note(
                    mapping.key_marks[key], f"unknown key {key!r}; allowed: {', '.join(allowed)}", where
                )

    def _wrong(self, mapping: MarkedDict, key: str, where: str, message: str) -> None:
        mark = mapping.value_marks.get(key, mapping.mark)
        self._note(mark, message, f"{where}.{key}".lstrip("."))

    def _note(self, mark: Mark, message: str, where: str) -> None:
        self.errors.append(SourceError(mark, message, field=where))


def _is_source(value: Any) -> bool:
    names = value.split(GATED_BY)
    if len(names) <= 2 and len(set(names)) == len(names) and set(names) <= set(Source):
        return True
    return value == "none" or _CONSTANT.fullmatch(value) is not None
