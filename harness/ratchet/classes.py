"""What is known of the classes of a module: whether one carries a per-worker state, and what its attributes hold."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from harness.ratchet.rules import Rules
from harness.ratchet.values import Kind, Value, annotated

CONSTRUCTORS = ("__init__", "__post_init__")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(slots=True)
class ClassFacts:
    """Grows while the methods of the class are walked; the second walk of a module sees all of it."""

    name: str
    per_worker: bool
    bases: list[ClassFacts] = field(default_factory=list)
    attributes: dict[str, Value] = field(default_factory=dict)

    def attribute(self, name: str) -> Value | None:
        """What any method of it, or of a base in the same module, put there; None where none did."""
        if name in self.attributes:
            return self.attributes[name]
        found = (base.attribute(name) for base in self.bases)
        return next((value for value in found if value is not None), None)

    def add(self, name: str, value: Value) -> None:
        old = self.attributes.get(name)
        self.attributes[name] = value if old is None else old | value


def is_per_worker(node: ast.ClassDef, bases: list[ClassFacts], rules: Rules) -> bool:
    """Whether the class is a worker by name or base, or keeps a per-worker state."""
    names = [node.name, *(base.id for base in node.bases if isinstance(base, ast.Name))]
    if any(fnmatchcase(name, pattern) for name in names for pattern in rules.worker_classes):
        return True
    return any(base.per_worker for base in bases) or any(_keeps_state(each, rules) for each in node.body)


def _keeps_state(statement: ast.stmt, rules: Rules) -> bool:
    match statement:
        case ast.AnnAssign(target=ast.Name(id=name)):
            return name in rules.state_names
        case ast.FunctionDef(name=name, args=arguments) if name in CONSTRUCTORS:
            return any(_takes_state(each, rules) for each in (*arguments.args, *arguments.kwonlyargs)) or any(
                isinstance(each, ast.Attribute)
                and isinstance(each.ctx, ast.Store)
                and each.attr in rules.state_names
                for each in ast.walk(statement)
            )
    return False


def _takes_state(argument: ast.arg, rules: Rules) -> bool:
    from_type = annotated(argument.arg, argument.annotation, rules)
    if from_type is not None:
        return from_type.is_a(Kind.STATE)
    return argument.arg in rules.state_names
