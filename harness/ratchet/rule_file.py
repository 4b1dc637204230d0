"""Reads a rules file: `configs/ratchet.yaml`, or an engine's own. Every mistake is told at its place."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import Mark, SourceError, SourceErrors
from harness.ratchet.rules import Axis, Exemption, OnUnparsed, Place, Rules
from harness.suites import MarkedDict, MarkedList, load_yaml
from harness.suites.wording import show, suggest

_TOP = (
    "roots",
    "exclude",
    "unparsed",
    "server_args",
    "live",
    "state",
    "workers",
    "init_calls",
    "setup_calls",
    "axes",
    "exempt",
)
_NAMES = {
    "server_args": ("names", "types", "getters", "same"),
    "live": ("getters",),
    "state": ("names", "types"),
    "workers": ("names", "classes"),
}
_AXIS = ("fields", "live", "live_calls", "instead", "per_worker")
_EXEMPT = ("places", "axes", "reason")


def load_rules(path: Path) -> Rules:
    """The rules of `path`. Raises SourceError, or SourceErrors with all that is wrong; UsageError for no file."""
    reader = _Reader()
    top = reader.mapping(load_yaml(path), Mark(path, 1, 1), "", _TOP)
    rules = _rules(reader, top)
    if reader.errors:
        raise reader.errors[0] if len(reader.errors) == 1 else SourceErrors(reader.errors)
    return rules


def _rules(reader: _Reader, top: MarkedDict) -> Rules:
    parts = {name: reader.section(top, name, keys) for name, keys in _NAMES.items()}

    def names(part: str, key: str) -> frozenset[str]:
        return frozenset(reader.texts(parts[part], key, where=part))

    axes = _axes(reader, top)
    if not names("server_args", "names"):
        reader.note(top.mark, "server_args.names", "missing; allowed: the names by which server args go")
    return Rules(
        axes=axes,
        args_names=names("server_args", "names"),
        args_types=names("server_args", "types"),
        args_getters=names("server_args", "getters"),
        same_args=names("server_args", "same"),
        live_getters=names("live", "getters"),
        state_names=names("state", "names"),
        state_types=names("state", "types"),
        worker_names=names("workers", "names"),
        worker_classes=reader.texts(parts["workers"], "classes", where="workers"),
        init_calls=frozenset(reader.texts(top, "init_calls")),
        setup_calls=frozenset(reader.texts(top, "setup_calls")),
        roots=reader.texts(top, "roots"),
        exclude=reader.texts(top, "exclude"),
        unparsed=_unparsed(reader, top),
        exemptions=_exemptions(reader, top, [axis.name for axis in axes]),
    )


def _unparsed(reader: _Reader, top: MarkedDict) -> OnUnparsed:
    given = top.get("unparsed", OnUnparsed.FAIL.value)
    if given not in list(OnUnparsed):
        reader.note(top.value_marks["unparsed"], "unparsed", f"{show(given)}; allowed: fail, report")
        return OnUnparsed.FAIL
    return OnUnparsed(given)


def _axes(reader: _Reader, top: MarkedDict) -> tuple[Axis, ...]:
    section = reader.section(top, "axes", None)
    if not section:
        reader.note(top.mark, "axes", "missing; allowed: at least one axis with its fields")
    axes = []
    owners: dict[str, str] = {}
    for name in section:
        where = f"axes.{name}"
        body = reader.mapping(section[name], section.value_marks[name], where, _AXIS)
        if body is not section[name]:
            continue
        axis = Axis(
            name=name,
            fields=reader.texts(body, "fields", where=where, required=True),
            live=reader.texts(body, "live", where=where),
            live_calls=reader.texts(body, "live_calls", where=where),
            instead=reader.text(body, "instead", where=where, required=True),
            per_worker=reader.text(body, "per_worker", where=where) or "the per-worker state",
        )
        for owned in {*axis.fields, *axis.live, *axis.live_calls}:
            if owners.setdefault(owned, name) != name:
                reader.note(
                    body.mark, where, f"{owned!r} is a name of {owners[owned]} too; allowed: one axis a name"
                )
        axes.append(axis)
    return tuple(axes)


def _exemptions(reader: _Reader, top: MarkedDict, axes: list[str]) -> tuple[Exemption, ...]:
    given = top.get("exempt", [])
    if not isinstance(given, MarkedList):
        if "exempt" in top:
            reader.note(top.value_marks["exempt"], "exempt", f"{show(given)}; allowed: a list")
        return ()
    exemptions = []
    for number, (item, mark) in enumerate(zip(given, given.item_marks, strict=True)):
        where = f"exempt[{number}]"
        body = reader.mapping(item, mark, where, _EXEMPT)
        if body is not item:
            continue
        wanted = reader.texts(body, "axes", where=where)
        for axis in wanted:
            if axis not in axes:
                reader.note(
                    body.value_marks["axes"], f"{where}.axes", f"unknown axis {axis!r}{suggest(axis, axes)}"
                )
        exemptions.append(
            Exemption(
                places=_places(reader, body, where),
                reason=reader.text(body, "reason", where=where, required=True),
                mark=mark,
                axes=wanted,
            )
        )
    return tuple(exemptions)


def _places(reader: _Reader, body: MarkedDict, where: str) -> tuple[Place, ...]:
    """`FILE`, `FILE::FUNCTION`, `FILE::FUNCTION::TEXT`; written twice, the second would never hold anything."""
    places: dict[str, Place] = {}
    for number, written in enumerate(reader.texts(body, "places", where=where, required=True)):
        mark = body["places"].item_marks[number]
        parts = written.split("::", 2)
        if not all(part.strip() for part in parts):
            reader.note(
                mark, f"{where}.places", f"{written!r}; allowed: FILE, FILE::FUNCTION, FILE::FUNCTION::TEXT"
            )
        elif written in places:
            reader.note(mark, f"{where}.places", f"{written!r} is written twice; allowed: once")
        else:
            places[written] = Place(mark=mark, **dict(zip(("file", "function", "text"), parts, strict=False)))
    return tuple(places.values())


@dataclass(slots=True)
class _Reader:
    """Takes values out of a marked tree, and notes what is wrong so that all of it is told at once."""

    errors: list[SourceError] = field(default_factory=list)

    def note(self, mark: Mark, where: str, message: str) -> None:
        self.errors.append(SourceError(mark, message, field=where))

    def mapping(self, value: Any, mark: Mark, where: str, allowed: tuple[str, ...] | None) -> MarkedDict:
        """`value` as a mapping with no key but those allowed (None: any); an empty one for anything else."""
        if not isinstance(value, MarkedDict):
            self.note(mark, where, f"{show(value)}; allowed: a mapping")
            return MarkedDict(mark)
        for key in value if allowed is not None else ():
            if key not in (allowed or ()):
                self.note(value.key_marks[key], where, f"unknown key {key!r}{suggest(key, allowed or ())}")
        return value

    def section(self, top: MarkedDict, key: str, allowed: tuple[str, ...] | None) -> MarkedDict:
        if key not in top:
            return MarkedDict(top.mark)
        return self.mapping(top[key], top.value_marks[key], key, allowed)

    def text(self, body: MarkedDict, key: str, *, where: str, required: bool = False) -> str:
        if key not in body:
            if required:
                self.note(body.mark, f"{where}.{key}", "missing; allowed: text")
            return ""
        value = body[key]
        if not isinstance(value, str) or not value.strip():
            self.note(body.value_marks[key], f"{where}.{key}", f"{show(value)}; allowed: text")
            return ""
        return value

    def texts(
        self, body: MarkedDict, key: str, *, where: str = "", required: bool = False
    ) -> tuple[str, ...]:
        at = f"{where}.{key}".removeprefix(".")
        if key not in body:
            if required:
                self.note(body.mark, at, "missing; allowed: a list of names")
            return ()
        value = body[key]
        if (
            not isinstance(value, list)
            or not value
            or not all(isinstance(each, str) and each for each in value)
        ):
            self.note(body.value_marks[key], at, f"{show(value)}; allowed: a list of names")
            return ()
        return tuple(value)
