"""The baseline on disk: YAML that a review can read, and that cannot be edited into saying two things."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from harness.errors import Mark, SourceError, UsageError
from harness.ratchet.baseline import Baseline, Cell, Increase, Places
from harness.ratchet.sites import Category
from harness.suites import MarkedDict, MarkedList, load_yaml
from harness.suites.wording import show, suggest

_HEAD = """\
# Topology reads that may stay for now: written by `harness ratchet scan --baseline FILE --update`, which lets no
# number up without --allow-increase REASON. Below each number are its call sites, by file and function.
"""
SCHEMA = 1


def load_baseline(path: Path) -> Baseline:
    """The baseline of `path`. Raises SourceError for what this room did not write; UsageError for no file."""
    if not path.exists():
        raise UsageError(f"there is no baseline {path}; `--update` writes one")
    top = _mapping(load_yaml(path), Mark(path, 1, 1), "", ("schema", "increases", "axes"))
    if not _is_number(top.get("schema"), SCHEMA):
        raise SourceError(
            top.value_marks.get("schema", top.mark),
            f"{show(top.get('schema'))}; allowed: {SCHEMA}, the layout that this harness writes",
            field="schema",
        )
    cells = {}
    axes = _part(top, "axes", "")
    for axis in axes:
        categories = _part(axes, axis, "axes", tuple(each.value for each in Category))
        for name in categories:
            where = f"axes.{axis}.{name}"
            cells[Cell(axis=axis, category=Category(name))] = _places(
                _part(categories, name, f"axes.{axis}"), where
            )
    return Baseline(cells, _increases(top))


def save_baseline(path: Path, baseline: Baseline) -> None:
    """Write it whole, or leave what is there. Raises UsageError where nothing can be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(
                _HEAD + yaml.safe_dump(_tree(baseline), sort_keys=False, width=10_000, allow_unicode=True)
            )
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except OSError as error:
        raise UsageError(f"the baseline {path} cannot be written: {error.strerror}") from None


def _tree(baseline: Baseline) -> dict[str, Any]:
    axes: dict[str, Any] = {}
    for cell in sorted(baseline.cells, key=lambda cell: (cell.axis, cell.category.rank)):
        places = baseline.cells[cell]
        files: dict[str, list[str]] = {}
        for file, key in sorted(places.elements()):
            files.setdefault(file, []).append(key)
        axes.setdefault(cell.axis, {})[cell.category.value] = {"total": places.total(), "files": files}
    increases = [{"reason": each.reason, "cells": list(each.cells)} for each in baseline.increases]
    return {"schema": SCHEMA} | ({"increases": increases} if increases else {}) | {"axes": axes}


def _places(body: MarkedDict, where: str) -> Places:
    _mapping(body, body.mark, where, ("total", "files"))
    places: Places = Counter()
    files = _part(body, "files", where)
    for file in files:
        for key in _texts(files, file, f"{where}.files"):
            places[file, key] += 1
    if not _is_number(body.get("total"), places.total()):
        raise SourceError(
            body.value_marks.get("total", body.mark),
            f"{show(body.get('total'))}, but {places.total()} sites are listed; allowed: to write it with --update",
            field=f"{where}.total",
        )
    return places


def _is_number(value: Any, wanted: int) -> bool:
    """YAML's `true` is equal to 1 in Python, and no number to whoever reads the file."""
    return type(value) is int and value == wanted


def _increases(top: MarkedDict) -> tuple[Increase, ...]:
    if "increases" not in top:
        return ()
    given = top["increases"]
    if not isinstance(given, MarkedList):
        raise SourceError(top.value_marks["increases"], f"{show(given)}; allowed: a list", field="increases")
    found = []
    for number, (item, mark) in enumerate(zip(given, given.item_marks, strict=True)):
        where = f"increases[{number}]"
        body = _mapping(item, mark, where, ("reason", "cells"))
        if not isinstance(body.get("reason"), str):
            raise SourceError(body.value_marks.get("reason", mark), "allowed: text", field=f"{where}.reason")
        found.append(Increase(body["reason"], tuple(_texts(body, "cells", where))))
    return tuple(found)


def _part(body: MarkedDict, key: str, where: str, allowed: tuple[str, ...] | None = None) -> MarkedDict:
    """A mapping inside a mapping; one that is not written is empty."""
    if key not in body:
        return MarkedDict(body.mark)
    return _mapping(body[key], body.value_marks[key], f"{where}.{key}".removeprefix("."), allowed)


def _mapping(value: Any, mark: Mark, where: str, allowed: tuple[str, ...] | None) -> MarkedDict:
    if not isinstance(value, MarkedDict):
        raise SourceError(mark, f"{show(value)}; allowed: a mapping", field=where)
    for key in value if allowed is not None else ():
        if key not in (allowed or ()):
            raise SourceError(
                value.key_marks[key], f"unknown key {key!r}{suggest(key, allowed or ())}", field=where
            )
    return value


def _texts(body: MarkedDict, key: str, where: str) -> list[str]:
    value = body.get(key, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise SourceError(
            body.value_marks[key], f"{show(value)}; allowed: a list of texts", field=f"{where}.{key}"
        )
    return list(value)
