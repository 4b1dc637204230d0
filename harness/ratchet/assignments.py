"""Binds what statements store: names, attributes of an object, tuples of both.

Where a worker keeps a process fact for itself, the read that brought it becomes a copy.
"""

from __future__ import annotations

import ast

from harness.ratchet.expressions import Expressions
from harness.ratchet.shapes import called_name, same_shape
from harness.ratchet.values import OPAQUE, OTHER, Kind, Value, annotated, bound_to


class Assignments(Expressions):
    """The part of the walk that looks at stores, in one scope."""

    def _assign(self, node: ast.stmt) -> None:
        assert isinstance(node, ast.Assign)
        if all(same_shape(target, node.value) for target in node.targets):
            self._assign_each(node.targets, node.value)
            return
        value = self.value(node.value)
        for target in node.targets:
            self.store(target, value)

    def _assign_each(self, targets: list[ast.expr], value: ast.expr) -> None:
        """`a, (b, c) = x, (y, z)`: every target gets its own part; all parts are read before any is stored."""
        stores = [(target, held) for target in targets for target, held in self._pairs(target, value)]
        for target, held in stores:
            self.store(target, held)

    def _pairs(self, target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, Value]]:
        if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
            each = zip(target.elts, value.elts, strict=True)
            return [pair for inner, part in each for pair in self._pairs(inner, part)]
        return [(target, self.value(value))]

    def _annotated_assign(self, node: ast.stmt) -> None:
        assert isinstance(node, ast.AnnAssign)
        value = self.value(node.value) if node.value is not None else None
        name = called_name(node.target)
        typed = annotated(name, node.annotation, self.rules)
        if typed is not None and value is not None:
            typed = Value(typed.kind, value.facts)
        held = typed or value
        if held is not None:
            self.store(node.target, held)

    def _augmented_assign(self, node: ast.stmt) -> None:
        assert isinstance(node, ast.AugAssign)
        self.value(node.value)
        if isinstance(node.target, ast.Attribute):
            self.read(node.target, self.value(node.target.value))  # it reads before it stores
        else:
            self.store(node.target, OTHER)

    def store(self, target: ast.expr, value: Value) -> None:
        """Bind a target: a name, an attribute, or all that is in a tuple."""
        match target:
            case ast.Name(id=name):
                self.scope.bind(name, bound_to(name, value, self.rules))
                if self.scope.is_class and self.scope.owner is not None:
                    self.scope.owner.add(name, Value(bound_to(name, value, self.rules).kind))
            case ast.Attribute():
                self._store_attribute(target, value)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    self.store(part, OPAQUE)
            case ast.Starred(value=inner):
                self.store(inner, OTHER)
            case _:
                self.parts(target)

    def _store_attribute(self, target: ast.Attribute, value: Value) -> None:
        base = self.value(target.value)
        if base.is_a(Kind.WORKER):
            self.keep(value, ast.unparse(target))
        owner, self_name = self.scope.method_owner()
        if owner is not None and isinstance(target.value, ast.Name) and target.value.id == self_name:
            held = Value(bound_to(target.attr, value, self.rules).kind)
            owner.add(target.attr, held)
            self.scope.now[f"{self_name}.{target.attr}"] = held

    def _delete(self, node: ast.stmt) -> None:
        assert isinstance(node, ast.Delete)
        for target in node.targets:
            self.store(target, OTHER)

    def _import(self, node: ast.stmt) -> None:
        assert isinstance(node, ast.Import | ast.ImportFrom)
        for each in node.names:
            name = each.asname or each.name.partition(".")[0]
            named = bound_to(each.name.rpartition(".")[2], OPAQUE, self.rules)
            imported = isinstance(node, ast.ImportFrom) and named.is_a(Kind.ARGS_GETTER | Kind.LIVE_GETTER)
            # Getters keep their meaning under another name; a module called server_args is no server args.
            self.scope.bind(name, named if imported else OTHER)
