"""`configs/baselines.yaml`: the recorded baselines of a catalogue, read strictly and written whole.

The file is committed, and only `harness baseline record` writes it: records in a fixed order and spelling, so
that a new recording is a small diff. Failure rule: every mistake in the file is a `SourceError` at its place;
a reader sees the old file or the new one, never half of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

import harness
from harness.checks.references import RecordedBaseline
from harness.checks.whole_file import replace_text
from harness.errors import Mark, SourceError, SourceErrors, UsageError
from harness.suites import MarkedDict, MarkedList, load_yaml
from harness.suites.diagnose import source_errors
from harness.suites.wording import dotted, show, suggest

HEADER = """\
# How accurate a healthy engine is, measured at dcp 1. Written by `harness baseline record`, never by hand: a record
# whose fingerprint does not fit its configuration is refused. What a record says is in docs/verdicts.md.
"""
VARIABLE = "HARNESS_BASELINES"
_KEY = "baselines"
_BESIDE = Path("configs/baselines.yaml")


def baselines_path(given: Path | None = None, *, catalogue: Path | None = None) -> Path:
    """The file, whether it is there or not: as given, `HARNESS_BASELINES`, or `configs/` beside the catalogue (of
    the checkout, where no catalogue is known)."""
    if given is None and (named := os.environ.get(VARIABLE)):
        given = Path(named)
    beside = Path(harness.__file__).parent if catalogue is None else catalogue.absolute()
    return given if given is not None else beside.parent / _BESIDE


def load_baselines(path: Path) -> tuple[RecordedBaseline, ...]:
    """The records of the file; none where there is no file. Raises SourceErrors, all mistakes at once."""
    return parse_baselines(load_yaml(path), mark=Mark(path, 1, 1)) if path.exists() else ()


def parse_baselines(tree: object, *, mark: Mark) -> tuple[RecordedBaseline, ...]:
    """The records of a marked tree; `mark` is the place of its start."""
    listed = tree.get(_KEY) if isinstance(tree, MarkedDict) else None
    if not isinstance(tree, MarkedDict) or not isinstance(listed, MarkedList):
        raise SourceErrors([SourceError(mark, f"allowed: one list '{_KEY}:' of recorded baselines")])
    errors = [
        SourceError(tree.key_marks[key], f"unknown key {show(key)}{suggest(key, [_KEY])}", field=key)
        for key in tree
        if key != _KEY
    ]
    records: dict[str, RecordedBaseline] = {}
    for index, (entry, place) in enumerate(zip(listed, listed.item_marks, strict=True)):
        read = _read(entry, mark=place, index=index)
        if isinstance(read, list):
            errors += read
        elif read.fingerprint in records:
            message = "a second record of this fingerprint; allowed: one record a configuration"
            errors.append(SourceError(place, message, field=dotted((_KEY, index))))
        else:
            records[read.fingerprint] = read
    if errors:
        raise SourceErrors(errors)
    return tuple(records.values())


def _read(entry: object, *, mark: Mark, index: int) -> RecordedBaseline | list[SourceError]:
    """One record, or what is wrong with it."""
    if not isinstance(entry, MarkedDict):
        message = (
            f"{show(entry)} is not allowed here; allowed: a record as `harness baseline record` writes it"
        )
        return [SourceError(mark, message, field=dotted((_KEY, index)))]
    try:
        return RecordedBaseline.model_validate(entry)
    except ValidationError as error:
        return source_errors(error, tree=entry, model=RecordedBaseline, prefix=(_KEY, index))


def with_record(records: Iterable[RecordedBaseline], new: RecordedBaseline) -> tuple[RecordedBaseline, ...]:
    """`new` in the place of the record of the same configuration, or beside the others."""
    return (*(record for record in records if record.fingerprint != new.fingerprint), new)


def write_baselines(path: Path, records: Iterable[RecordedBaseline]) -> None:
    """Write the whole file under a temporary name, then rename it. Raises UsageError where it cannot be."""
    try:
        replace_text(path, render_baselines(records))
    except OSError as error:
        raise UsageError(f"the baselines file {path} cannot be written: {error.strerror}") from error


def render_baselines(records: Iterable[RecordedBaseline]) -> str:
    """The text of the file: the same for the same records in any order."""
    ordered = sorted(records, key=lambda record: (record.task, record.model, record.fingerprint))
    if not ordered:
        return f"{HEADER}{_KEY}: []\n"
    return HEADER + f"{_KEY}:\n" + "".join(map(_render, ordered))


def _render(record: RecordedBaseline) -> str:
    values = record.model_dump(mode="json", exclude_none=True)
    lines = list(_lines(values))
    return "".join(f"  {'-' if number == 0 else ' '} {line}\n" for number, line in enumerate(lines))


def _lines(values: Mapping[str, Any], *, indent: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield f"{indent}{name}:"
            yield from _lines(value, indent=indent + "  ")
        else:
            # JSON is YAML, and quotes every text: no fingerprint may be taken for a number.
            yield f"{indent}{name}: {json.dumps(value, ensure_ascii=False)}"
