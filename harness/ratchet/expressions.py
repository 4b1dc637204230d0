"""Says what an expression may hold, and notes the reads in it.

Every expression is visited once for each time its statement is; those of annotations never, as they read nothing when
a program runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager

from harness.ratchet.bindings import parameters
from harness.ratchet.recorder import Recorder
from harness.ratchet.rules import Axis, Rules
from harness.ratchet.scopes import Scope
from harness.ratchet.shapes import called_name
from harness.ratchet.sites import Category
from harness.ratchet.values import (
    ANY_ARGS,
    OPAQUE,
    OTHER,
    Fact,
    Kind,
    Value,
    annotated,
    bound_to,
    join,
    known_by_name,
)

_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp

# Calls that answer one of their arguments: a fact goes through them unchanged.
_SAME_NUMBER = frozenset({"int", "max", "min"})
# Lower-case builtins that make something of their own; a name bound to their answer is server args no more.
_MAKERS = frozenset(
    {"dict", "list", "set", "tuple", "frozenset", "str", "int", "bool", "vars", "asdict", "object", "open"}
)


class Expressions:
    """The half of the walk that looks at expressions. `scope` is the one being walked."""

    def __init__(self, rules: Rules, recorder: Recorder, scope: Scope) -> None:
        self.rules = rules
        self.recorder = recorder
        self.scope = scope
        self.lambdas = 0
        self.seeding = 0

    def value(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value=None):
                return OPAQUE  # a name that starts as None is bound to something else before it is read
            case ast.Name():
                return self._name(node)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Call():
                return self._call(node)
            case ast.NamedExpr():
                value = self.value(node.value)
                self.scope.bind(node.target.id, bound_to(node.target.id, value, self.rules))
                # The object now goes by the target's name too, and is read by it.
                return bound_to(node.target.id, value, self.rules)
            case ast.IfExp():
                self.value(node.test)
                return join([self.value(node.body), self.value(node.orelse)])
            case ast.BoolOp():
                return join([self.value(each) for each in node.values])
            case ast.Lambda():
                return self._lambda(node)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                return self._comprehension(node)
            case ast.Subscript() | ast.Await():
                self.parts(node)
                return OPAQUE
        self.parts(node)
        return OTHER

    def parts(self, node: ast.AST) -> None:
        """Visit the expressions right below `node`."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.value(child)
            elif isinstance(child, ast.keyword):
                self.value(child.value)

    def _name(self, node: ast.Name) -> Value:
        held = self.scope.look_up(node.id)
        return known_by_name(node.id, self.rules) if held is None else held

    def _attribute(self, node: ast.Attribute) -> Value:
        base = self.value(node.value)
        return self.read(node, base) or self._held(node, base)

    def read(self, node: ast.Attribute, base: Value) -> Value | None:
        """Note what reading `node` off `base` means; its fact, or None where it is no read of topology."""
        facts = frozenset[Fact]()
        config, live = self.rules.axis_of_field.get(node.attr), self.rules.axis_of_live.get(node.attr)
        if config is not None and base.is_a(ANY_ARGS):
            if not self.seeding:
                category = Category.DIRECT if base.is_a(Kind.ARGS) else Category.ALIASED
                self._note(node, category, config)
            facts |= {Fact(node, config, config=True)}
        if live is not None and base.is_a(Kind.LIVE):
            facts |= {self._live(node, live)}
        return Value(Kind.OTHER, facts) if facts else None

    def _live(self, node: ast.expr, axis: Axis) -> Fact:
        init = self.scope.init_end
        if init is not None and not self.lambdas and (node.lineno, node.col_offset) < init:
            self._note(node, Category.EARLY, axis)
        return Fact(node, axis, config=False)

    def _held(self, node: ast.Attribute, base: Value) -> Value:
        """What an attribute holds: as stored in this method, or by any of the class, or by its name."""
        owner, self_name = self.scope.method_owner()
        if self_name and isinstance(node.value, ast.Name) and node.value.id == self_name:
            here = self.scope.now.get(f"{self_name}.{node.attr}")
            stored = here if here is not None or owner is None else owner.attribute(node.attr)
            if stored is not None:
                return stored
        return known_by_name(node.attr, self.rules)

    def _call(self, node: ast.Call) -> Value:
        function = self.value(node.func)
        name = called_name(node.func)
        takes_seed = name in self.rules.takes_seed
        self.seeding += takes_seed
        arguments = [self.value(each) for each in node.args]
        arguments += [self.value(each.value) for each in node.keywords]
        self.seeding -= takes_seed
        if name in ("getattr", "hasattr") and isinstance(node.func, ast.Name):
            found = self._by_text(node, name, arguments)
            if found is not None:
                return found
        if function.is_a(Kind.ARGS_GETTER | Kind.LIVE_GETTER):
            got = [
                Value(kind)
                for getter, kind in ((Kind.ARGS_GETTER, Kind.ARGS), (Kind.LIVE_GETTER, Kind.LIVE))
                if function.is_a(getter)
            ]
            return join(got)
        if name in self.rules.axis_of_call:
            return Value(Kind.OTHER, frozenset({self._live(node, self.rules.axis_of_call[name])}))
        return self._answer(node, name, arguments)

    def _answer(self, node: ast.Call, name: str, arguments: list[Value]) -> Value:
        """What a call that is no read answers."""
        if name in self.rules.args_types or self._made_by_type(node.func):
            return Value(Kind.ARGS)
        if name in self.rules.state_types:
            return Value(Kind.STATE)
        args = [each for each in arguments if each.is_a(ANY_ARGS)]
        if name in self.rules.same_args and args:
            return join(args)
        if name in _SAME_NUMBER and arguments:
            return Value(Kind.OTHER, join(arguments).facts)
        is_class = name[:1].isupper() and not isinstance(node.func, ast.Call)
        return OTHER if is_class or name in _MAKERS else OPAQUE

    def _made_by_type(self, function: ast.expr) -> bool:
        """`ServerArgs.from_cli_args(...)`"""
        return isinstance(function, ast.Attribute) and called_name(function.value) in self.rules.args_types

    def _by_text(self, node: ast.Call, name: str, arguments: list[Value]) -> Value | None:
        """`getattr` or `hasattr` of one name: a read with a guess beside it, or an attribute like any other."""
        if len(node.args) < 2 or self.scope.look_up(name) is not None:
            return None  # not Python's own
        match node.args[1]:
            case ast.Constant(value=str(text)):
                pass
            case _:
                return None
        base = arguments[0]
        axis = self.rules.axis_of_any.get(text)
        if axis is None or not base.is_a(ANY_ARGS | Kind.LIVE | Kind.STATE | Kind.WORKER):
            held = known_by_name(text, self.rules)
            return held if name == "getattr" and held != OTHER else None
        self._note(node, Category.DEFENSIVE, axis)
        if name == "hasattr":
            return OTHER
        config = base.is_a(ANY_ARGS)
        return Value(
            Kind.OTHER, frozenset({Fact(node, axis, config=config)} if config or base.is_a(Kind.LIVE) else ())
        )

    def keep(self, value: Value, kept_as: str) -> None:
        """A per-worker object keeps `value` for itself: every process fact in it is a copy."""
        for fact in value.facts:
            self._note(fact.node, Category.COPIED, fact.axis, kept_as=kept_as)

    def _note(self, node: ast.expr, category: Category, axis: Axis, *, kept_as: str = "") -> None:
        self.recorder.note(node, category, axis, function=self.scope.name, kept_as=kept_as)

    def _lambda(self, node: ast.Lambda) -> Value:
        with self._overlaid(self.given(node.args, self.defaults(node.args))):
            self.lambdas += 1  # what it reads, it reads later
            self.value(node.body)
            self.lambdas -= 1
        return OTHER

    def _comprehension(self, node: _Comprehension) -> Value:
        targets = {
            each.id: OTHER
            for generator in node.generators
            for each in ast.walk(generator.target)
            if isinstance(each, ast.Name)
        }
        self.value(node.generators[0].iter)  # outside, where the targets are not bound yet
        with self._overlaid(targets):
            for number, generator in enumerate(node.generators):
                for each in ([generator.iter] if number else []) + generator.ifs:
                    self.value(each)
            self.parts(node)
        return OTHER

    @contextmanager
    def _overlaid(self, names: dict[str, Value]) -> Iterator[None]:
        """Names of a scope inside an expression, for as long as it is visited."""
        hidden = {name: self.scope.now[name] for name in names if name in self.scope.now}
        self.scope.now.update(names)
        try:
            yield
        finally:
            for name in names:
                self.scope.now.pop(name, None)
            self.scope.now.update(hidden)

    def defaults(self, arguments: ast.arguments) -> dict[str, Value]:
        """The defaults of parameters, by name; they are read here, where the function is defined."""
        positional = [*arguments.posonlyargs, *arguments.args]
        first = len(positional) - len(arguments.defaults)
        pairs = [
            *zip(positional[first:], arguments.defaults, strict=True),
            *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
        ]
        return {each.arg: self.value(default) for each, default in pairs if default is not None}

    def given(self, arguments: ast.arguments, defaults: dict[str, Value]) -> dict[str, Value]:
        """What each parameter holds, by name: by its annotation, by a default that is server args, else by its name."""
        return {each.arg: self._parameter(each, defaults.get(each.arg)) for each in parameters(arguments)}

    def _parameter(self, argument: ast.arg, default: Value | None) -> Value:
        from_type = annotated(argument.arg, argument.annotation, self.rules)
        if from_type is not None:
            return from_type
        if default is not None and default.is_a(ANY_ARGS):
            return bound_to(argument.arg, default, self.rules)
        return known_by_name(argument.arg, self.rules)
