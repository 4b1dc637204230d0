"""The `tests:` of a suite: glob patterns for plain pytest files, relative to the file that wrote the pattern.

A pattern that matches nothing is an error at its place: a suite that silently runs fewer tests looks green.
"""

from __future__ import annotations

import re
from pathlib import Path

from harness.errors import Mark, SourceError
from harness.suites.wording import show
from harness.suites.yaml_marks import MarkedDict, MarkedList

_PATTERN = re.compile(r"[A-Za-z0-9_.*?\[\]-]+(/[A-Za-z0-9_.*?\[\]-]+)*")


def find_tests(tree: MarkedDict) -> tuple[tuple[Path, ...], list[SourceError]]:
    """The files of all patterns, each once and in the order of the patterns, and what is wrong with those."""
    patterns = tree.get("tests")
    files: dict[Path, None] = {}
    errors: list[SourceError] = []
    if isinstance(patterns, MarkedList):
        for index, (pattern, mark) in enumerate(zip(patterns, patterns.item_marks, strict=True)):
            if not isinstance(pattern, str):
                continue  # the model of the suite file refuses it
            try:
                files |= dict.fromkeys(_match(pattern, mark))
            except SourceError as error:
                errors.append(SourceError(error.mark, error.message, field=f"tests[{index}]"))
    return tuple(files), errors


def _match(pattern: str, mark: Mark) -> list[Path]:
    allowed = "a glob such as test_*.py, relative to this file"
    if not _PATTERN.fullmatch(pattern):
        raise SourceError(mark, f"{show(pattern)} is no pattern; allowed: {allowed}")
    folder = mark.file.parent
    try:
        found = sorted(path for path in folder.glob(pattern) if path.suffix == ".py" and path.is_file())
    except (ValueError, IndexError, OSError) as error:
        raise SourceError(mark, f"{show(pattern)} is no pattern ({error}); allowed: {allowed}") from None
    if not found:
        raise SourceError(mark, f"{show(pattern)} matches no Python file below {folder}")
    return found
