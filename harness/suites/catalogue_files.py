"""Which files of a catalogue are suites, and what their names are.

Every file below the folder that ends in `.yaml` is a suite, but for bases (`_x.yaml`) and what is hidden
(`.x.yaml`, `.git/`). Links are followed, to folders too. Whatever looks like a suite and cannot be one (a
folder that cannot be read, a link to nowhere, `x.yml`) is an error: left out in silence, it would never run
and nobody would notice.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from harness.errors import Mark, SourceError, UsageError

SUFFIX = ".yaml"
# Endings that people and editors give YAML files, compared in lower case.
_LOOK_ALIKES = (SUFFIX, ".yml")
# A file of this prefix is a base for `extends:` and no suite of its own.
BASE_PREFIX = "_"
_HIDDEN_PREFIX = "."
# Names go into patterns, job ids (`name@profile[point]`) and paths: no `*`, `?`, `[`, `@`, `,` or newline.
_NAME = re.compile(r"[\w.+ -]+(/[\w.+ -]+)*")


def suite_files(root: Path) -> tuple[list[Path], list[SourceError]]:
    """The suites below `root` in order, and what looks like one and is none.

    Raises UsageError where `root` is no folder.
    """
    if not root.is_dir():
        raise UsageError(f"{root} is not a folder of suites")
    files: list[Path] = []
    errors: list[SourceError] = []
    _walk(root, files, errors, above=frozenset())
    return sorted(files), errors


def suite_name(path: Path, *, root: Path) -> str:
    """The name of the suite in `path`. Raises SourceError where it holds what no pattern or job id can."""
    name = path.relative_to(root).with_suffix("").as_posix()
    if not _NAME.fullmatch(name):
        message = f"the name {name!r}; allowed: letters, digits, '_', '-', '.', '+' and spaces"
        raise SourceError(Mark(path, 1, 1), message)
    return name


def _walk(folder: Path, files: list[Path], errors: list[SourceError], *, above: frozenset[Path]) -> None:
    """`above` holds the real paths of the folders that lead here: a link back to one of them is not followed."""
    real = folder.resolve()
    if real in above:
        return
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        errors.append(SourceError(Mark(folder, 1, 1), f"the folder cannot be read: {error.strerror}"))
        return
    for entry in entries:
        path = folder / entry.name
        if entry.name.startswith((_HIDDEN_PREFIX, BASE_PREFIX)) and not path.is_dir():
            continue
        if path.is_dir():
            if not entry.name.startswith(_HIDDEN_PREFIX):
                _walk(path, files, errors, above=above | {real})
        elif path.suffix.lower() in _LOOK_ALIKES:
            if wrong := _what_is_wrong(path):
                errors.append(SourceError(Mark(path, 1, 1), wrong))
            else:
                files.append(path)


def _what_is_wrong(path: Path) -> str | None:
    if not path.exists():
        return "the link leads nowhere"
    if not path.is_file():
        return "is not a regular file"
    return None if path.suffix == SUFFIX else f"the name ends in {path.suffix}; allowed: {SUFFIX}"
