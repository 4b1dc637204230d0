"""What an expression may hold, as far as a scan has to know: a union of kinds, and the facts read into it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from enum import Flag, auto
from functools import reduce

from harness.ratchet.rules import Axis, Rules


class Kind(Flag):
    """Kinds join where branches of a program meet, so a value may be of several."""

    ARGS = auto()  # server args, under a name of theirs
    ALIAS = auto()  # server args, under any other name
    LIVE = auto()  # the live topology
    STATE = auto()  # a per-worker state
    WORKER = auto()  # an object that carries one
    ARGS_GETTER = auto()
    LIVE_GETTER = auto()
    OPAQUE = auto()  # anything: a name of server args keeps its meaning when this is bound to it
    OTHER = auto()  # none of these


_NOTHING = Kind(0)
ANY_ARGS = Kind.ARGS | Kind.ALIAS


@dataclass(frozen=True, slots=True)
class Fact:
    """A process fact that an expression read: from live topology, or from server args (`config`)."""

    node: ast.expr
    axis: Axis
    config: bool


@dataclass(frozen=True, slots=True)
class Value:
    kind: Kind
    facts: frozenset[Fact] = frozenset()

    def __or__(self, other: Value) -> Value:
        return Value(self.kind | other.kind, self.facts | other.facts)

    def is_a(self, kind: Kind) -> bool:
        return bool(self.kind & kind)


OPAQUE = Value(Kind.OPAQUE)
OTHER = Value(Kind.OTHER)


def join(values: list[Value]) -> Value:
    return reduce(Value.__or__, values, Value(_NOTHING)) if values else OTHER


def joined(ends: list[dict[str, Value]]) -> dict[str, Value]:
    """What names hold where branches that ended so meet."""
    together: dict[str, Value] = {}
    for end in ends:
        for name, value in end.items():
            together[name] = together[name] | value if name in together else value
    return together


def by_name(name: str, rules: Rules) -> Value:
    """What a name stands for where nothing else is known of it."""
    kinds = (
        (rules.args_names, Kind.ARGS),
        (rules.state_names, Kind.STATE),
        (rules.worker_names, Kind.WORKER),
        (rules.args_getters, Kind.ARGS_GETTER),
        (rules.live_getters, Kind.LIVE_GETTER),
    )
    return Value(next((kind for names, kind in kinds if name in names), Kind.OPAQUE))


def known_by_name(name: str, rules: Rules) -> Value:
    """The same for a name that is read: one that means nothing is somebody else's object, not just anything."""
    named = by_name(name, rules)
    return OTHER if named == OPAQUE else named


def bound_to(name: str, value: Value, rules: Rules) -> Value:
    """What `name` holds after `name = value`: server args under another name are an alias."""
    if value.is_a(ANY_ARGS):
        named = Kind.ARGS if name in rules.args_names else Kind.ALIAS
        return Value((value.kind & ~ANY_ARGS) | named, value.facts)
    return by_name(name, rules) if value == OPAQUE else value


# Subscripts that leave the value what it is inside; in all others the type is only a part.
_TRANSPARENT = frozenset({"Optional", "Union", "Annotated", "Final", "ClassVar", "InitVar"})
# Annotations that promise nothing.
_VAGUE = frozenset({"Any", "object"})


def annotated(name: str, annotation: ast.expr | None, rules: Rules) -> Value | None:
    """What an annotation makes of `name`; None where it says nothing."""
    if annotation is None:
        return None
    types = _type_names(annotation)
    if types & rules.args_types:
        return Value(Kind.ARGS if name in rules.args_names else Kind.ALIAS)
    if types & rules.state_types:
        return Value(Kind.STATE)
    if types <= _VAGUE | {"None"}:
        return None
    # A worker may be annotated with its class, a getter with Callable: their names tell more than types do.
    named = by_name(name, rules)
    return named if named.is_a(Kind.WORKER | Kind.ARGS_GETTER | Kind.LIVE_GETTER) else OTHER


def _type_names(node: ast.expr) -> frozenset[str]:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return frozenset({name})
        case ast.Constant(value=None):
            return frozenset({"None"})
        case ast.Constant(value=str(text)):
            return _quoted_type_names(text)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _type_names(left) | _type_names(right)
        case ast.Subscript(value=ast.Name(id=base) | ast.Attribute(attr=base), slice=inner):
            if base not in _TRANSPARENT:
                return frozenset({base})
            parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            return frozenset().union(*map(_type_names, parts))
    return frozenset({"?"})


def _quoted_type_names(text: str) -> frozenset[str]:
    try:
        return _type_names(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError):
        return frozenset(re.findall(r"\w+", text))
