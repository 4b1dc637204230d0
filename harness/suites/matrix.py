"""`matrix: {dcp: [2, 4]}` and `${dcp}`: one suite file, several points.

Phases: `read_matrix` finds the points; `substitute` writes one point's values into a tree. A value that is
`${dcp}` alone becomes the matrix value with its type, inside longer text it becomes text; `$${` writes a
plain `${`. Unknown and unused variables are errors, at the place of the value or of the variable.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from math import prod

from harness.errors import Mark, SourceError
from harness.suites.wording import show, suggest
from harness.suites.yaml_marks import MarkedDict, MarkedList
from harness.suites.yaml_scalars import short

MatrixValue = bool | int | float | str
Point = dict[str, MatrixValue]

# Each point is a job of its own; more than this is a mistake in the file, not a night's work.
MAX_POINTS = 256

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_VARIABLE = re.compile(r"\$(\$?)\{([^{}\n]*)\}")
# What names or files a suite is the same at every point, so variables mean nothing there.
_FIXED = frozenset(
    {"extends", "matrix", "summary", "owners", "tags", "triggers", "upstream", "skip", "targets"}
)


@dataclass(slots=True)
class Substitution:
    """One pass over a tree; collects errors and the variables that were used."""

    point: Point
    used: set[str] = field(default_factory=set)
    errors: list[SourceError] = field(default_factory=list)


def read_matrix(tree: MarkedDict) -> list[Point]:
    """The points of a suite in the order written, last variable fastest; one empty point without a matrix."""
    if "matrix" not in tree:
        return [{}]
    matrix = tree["matrix"]
    if not isinstance(matrix, MarkedDict) or not matrix:
        found = show(matrix) if matrix != {} else "an empty mapping"
        allowed = "a mapping of variables to lists of values"
        raise SourceError(
            tree.value_marks["matrix"], f"{found} is no matrix; allowed: {allowed}", field="matrix"
        )
    for name, values in matrix.items():
        _check_variable(matrix, name, values)
    if (count := prod(len(values) for values in matrix.values())) > MAX_POINTS:
        message = f"{count:,} points; allowed: {MAX_POINTS} or fewer"
        raise SourceError(tree.value_marks["matrix"], message, field="matrix")
    return [dict(zip(matrix, values, strict=True)) for values in itertools.product(*matrix.values())]


def _check_variable(matrix: MarkedDict, name: str, values: object) -> None:
    where = f"matrix.{name}"
    if not _NAME.fullmatch(name):
        message = f"{show(name)} is no variable; allowed: lower case letters, digits and '_'"
        raise SourceError(matrix.key_marks[name], message, field="matrix")
    if not isinstance(values, MarkedList) or not values:
        found = show(values) if values != [] else "an empty list"
        raise SourceError(matrix.value_marks[name], f"{found}; allowed: a list of values", field=where)
    seen: list[tuple[type, object]] = []
    for index, value in enumerate(values):
        if not isinstance(value, bool | int | float | str):
            message = f"{show(value)}; allowed: a number, a text, true or false"
            raise SourceError(values.item_marks[index], message, field=f"{where}[{index}]")
        if (type(value), value) in seen:
            message = f"{show(value)} is listed twice"
            raise SourceError(values.item_marks[index], message, field=f"{where}[{index}]")
        seen.append((type(value), value))


def substitute(tree: MarkedDict, point: Point) -> tuple[MarkedDict, Substitution]:
    """`tree` at one point, without its matrix; errors and used variables are in the Substitution."""
    state = Substitution(point)
    result = MarkedDict(tree.mark)
    for key, value in tree.items():
        mark = tree.value_marks[key]
        if key != "matrix":
            fixed = key in _FIXED
            value = value if fixed else _walk(value, mark, state)
            result.put(key, value, key_mark=tree.key_marks[key], value_mark=mark)
    return result, state


def unused(tree: MarkedDict, used: set[str]) -> list[SourceError]:
    """One error for each matrix variable that no value reads."""
    matrix: MarkedDict = tree["matrix"] if "matrix" in tree else MarkedDict(tree.mark)
    return [
        SourceError(matrix.key_marks[name], f"no value reads ${{{name}}}", field=f"matrix.{name}")
        for name in matrix
        if name not in used
    ]


def _walk(value: object, mark: Mark, state: Substitution) -> object:
    """Depth is bounded by the loader, so recursion is."""
    if isinstance(value, MarkedDict):
        mapping = MarkedDict(value.mark)
        for key, item in value.items():
            place = value.value_marks[key]
            mapping.put(key, _walk(item, place, state), key_mark=value.key_marks[key], value_mark=place)
        return mapping
    if isinstance(value, MarkedList):
        items = MarkedList(value.mark)
        for item, place in zip(value, value.item_marks, strict=True):
            items.put(_walk(item, place, state), mark=place)
        return items
    return _fill(value, mark, state) if isinstance(value, str) else value


def _fill(text: str, mark: Mark, state: Substitution) -> MatrixValue:
    whole = _VARIABLE.fullmatch(text)
    if whole and not whole[1]:
        return _value(whole[2], mark, state)
    return _VARIABLE.sub(
        lambda match: match[0][1:] if match[1] else written(_value(match[2], mark, state)), text
    )


def _value(name: str, mark: Mark, state: Substitution) -> MatrixValue:
    if name in state.point:
        state.used.add(name)
        return state.point[name]
    hint = suggest(name, state.point) if state.point else " (the suite has no matrix)"
    state.errors.append(SourceError(mark, f"unknown matrix variable ${{{short(name)}}}{hint}"))
    return ""


def written(value: MatrixValue) -> str:
    """A matrix value as YAML writes it, for texts and job ids."""
    return str(value).lower() if isinstance(value, bool) else str(value)
