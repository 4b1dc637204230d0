"""Suite files to suites: one file, or a whole catalogue with all of its errors at once.

Phases of one file: read with positions → merge its bases → find its matrix points → for each point
substitute, then validate shapes, checks, tests and the rules that span keys, and collect what is wrong. A
phase before the points that fails ends the file, since the ones after it would only repeat the cause. A
catalogue goes on with the next file and raises `SourceErrors` at the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from harness.errors import Mark, SourceError, SourceErrors, UsageError
from harness.suites.check_list import read_checks
from harness.suites.diagnose import dotted, source_errors
from harness.suites.extends import load_extended
from harness.suites.matrix import Point, read_matrix, substitute, unused
from harness.suites.model import SuiteFile
from harness.suites.pytest_files import find_tests
from harness.suites.rules import Finding, check_parts, check_suite
from harness.suites.suite import Catalogue, Suite, SuitePoint
from harness.suites.yaml_marks import MarkedDict, mark_at

SUFFIX = ".yaml"
# A file of this prefix is a base for `extends:` and no suite of its own.
BASE_PREFIX = "_"


def load_suite(path: Path, *, root: Path) -> Suite:
    """The suite of one file below `root`; raises SourceErrors with everything that is wrong with it."""
    try:
        tree = load_extended(path)
        points = read_matrix(tree)
    except SourceError as error:
        raise SourceErrors([error]) from None
    loaded = [_load_point(tree, point) for point in points]
    used = {name for point in loaded for name in point.used}
    if errors := _unique([error for point in loaded for error in point.errors] + unused(tree, used)):
        raise SourceErrors(errors)
    name = path.relative_to(root).with_suffix("").as_posix()
    return Suite(name=name, path=path, points=tuple(point.done for point in loaded if point.done))


def load_catalogue(root: Path) -> Catalogue:
    """All suites below `root`, by name; raises SourceErrors with the errors of all files."""
    suites, errors = _load_all(root)
    if errors:
        raise SourceErrors(errors)
    return Catalogue(root=root, suites=tuple(suites))


def check_catalogue(root: Path) -> list[SourceError]:
    """What is wrong with the suites below `root`, file by file; empty when nothing is."""
    return _load_all(root)[1]


def suite_files(root: Path) -> list[Path]:
    """The YAML files below `root` that are suites; raises UsageError where `root` is no folder."""
    if not root.is_dir():
        raise UsageError(f"{root} is not a folder of suites")
    files = [path for path in root.rglob("*") if path.suffix in (SUFFIX, ".yml") and path.is_file()]
    return sorted(path for path in files if not path.name.startswith(BASE_PREFIX))


def _load_all(root: Path) -> tuple[list[Suite], list[SourceError]]:
    suites: list[Suite] = []
    errors: list[SourceError] = []
    for path in suite_files(root):
        if path.suffix != SUFFIX:
            errors.append(SourceError(Mark(path, 1, 1), f"the name ends in {path.suffix}; allowed: {SUFFIX}"))
            continue
        try:
            suites.append(load_suite(path, root=root))
        except SourceErrors as found:
            errors.extend(found.errors)
    return sorted(suites, key=lambda suite: suite.name), errors


@dataclass(slots=True)
class _Loaded:
    """One matrix point: done, or the errors that kept it from being so."""

    used: set[str]
    errors: list[SourceError] = field(default_factory=list)
    done: SuitePoint | None = None


def _load_point(tree: MarkedDict, point: Point) -> _Loaded:
    filled, state = substitute(tree, point)
    loaded = _Loaded(used=state.used, errors=state.errors)
    if state.errors:
        return loaded
    checks = read_checks(filled)
    tests, test_errors = find_tests(filled)
    loaded.errors += checks.errors + test_errors
    try:
        suite = SuiteFile.model_validate(filled)
    except ValidationError as error:
        loaded.errors += source_errors(error, tree=filled, model=SuiteFile)
        loaded.errors += _errors(check_parts(filled, [details["loc"] for details in error.errors()]), filled)
        return loaded
    loaded.errors += _errors(check_suite(suite), filled)
    loaded.done = SuitePoint(matrix=point, file=suite, checks=checks.by_profile, tests=tests)
    return loaded


def _errors(findings: Iterable[Finding], tree: MarkedDict) -> list[SourceError]:
    return [
        SourceError(
            mark_at(tree, found.location, key=found.on_key), found.message, field=dotted(found.location)
        )
        for found in findings
    ]


def _unique(errors: list[SourceError]) -> list[SourceError]:
    """One error per place and message, in file order: the points of a matrix repeat each other's."""
    unique = {(error.mark, error.message): error for error in errors}
    return sorted(
        unique.values(), key=lambda error: (str(error.mark.file), error.mark.line, error.mark.column)
    )
