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

from harness.errors import SourceError, SourceErrors
from harness.suites.catalogue_files import suite_files, suite_name
from harness.suites.check_list import read_checks
from harness.suites.diagnose import source_errors
from harness.suites.extends import load_extended
from harness.suites.findings import Finding
from harness.suites.matrix import Point, read_matrix, substitute, unused
from harness.suites.model import SuiteFile
from harness.suites.pytest_files import find_tests
from harness.suites.rules import check_parts, check_suite
from harness.suites.suite import Catalogue, Suite, SuitePoint
from harness.suites.wording import dotted
from harness.suites.yaml_marks import MarkedDict, mark_at


def load_suite(path: Path, *, root: Path) -> Suite:
    """The suite of one file below `root`; raises SourceErrors with everything that is wrong with it."""
    errors: list[SourceError] = []
    try:
        name = suite_name(path, root=root)
        tree, errors = load_extended(path)
        points = read_matrix(tree)
    except SourceError as error:
        raise SourceErrors([*errors, error]) from None
    loaded = [_load_point(tree, point) for point in points]
    used = {name for point in loaded for name in point.used}
    told = {error.mark for error in errors}  # what a wrong value leads to is no mistake of its own
    later = [error for point in loaded for error in point.errors] + unused(tree, used)
    if errors := _unique(errors + [error for error in later if error.mark not in told]):
        raise SourceErrors(errors)
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


def _load_all(root: Path) -> tuple[list[Suite], list[SourceError]]:
    suites: list[Suite] = []
    files, errors = suite_files(root)
    for path in files:
        try:
            suites.append(load_suite(path, root=root))
        except SourceErrors as found:
            errors.extend(found.errors)
    return sorted(suites, key=lambda suite: suite.name), _in_order(errors)


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
    """Each error once, in file order: the points of a matrix repeat each other's."""
    return _in_order({str(error): error for error in errors}.values())


def _in_order(errors: Iterable[SourceError]) -> list[SourceError]:
    return sorted(errors, key=lambda error: (str(error.mark.file), error.mark.line, error.mark.column))
