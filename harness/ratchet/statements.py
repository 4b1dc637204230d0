"""Walks the statements of a module in the order they run, so that a name means what was bound to it last.

Phases: every body is walked with what its names hold, branches are joined, and functions wait until the scope around
them is done, as they run later. The whole module is walked twice: what a class or a module stores in one place and
reads in another is known in the second walk, and only that one counts.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field

from harness.ratchet.assignments import Assignments
from harness.ratchet.bindings import Bindings, bindings, bound_in
from harness.ratchet.classes import CONSTRUCTORS, ClassFacts, Function, is_per_worker
from harness.ratchet.prefilter import Mentions
from harness.ratchet.recorder import Recorder
from harness.ratchet.rules import Rules
from harness.ratchet.scopes import Position, Scope
from harness.ratchet.shapes import called_name, is_static, of_this_scope
from harness.ratchet.sites import Site
from harness.ratchet.values import ANY_ARGS, OPAQUE, OTHER, Kind, Value, bound_to, joined

_Loop = ast.For | ast.AsyncFor | ast.While


@dataclass(slots=True)
class _Learned:
    """What the first walk leaves for the second."""

    classes: dict[Position, ClassFacts] = field(default_factory=dict)
    module: dict[str, Value] = field(default_factory=dict)
    bindings: dict[ast.AST, Bindings] = field(default_factory=dict)

    def bindings_of(self, node: ast.Module | ast.ClassDef | Function) -> Bindings:
        """They are of the text alone, so the second walk takes those of the first."""
        if node not in self.bindings:
            arguments = node.args if isinstance(node, Function) else None
            self.bindings[node] = bindings(node.body, arguments)
        return self.bindings[node]

    def args_names(self) -> set[str]:
        """Names that turned out to hold server args."""
        held = [self.module, *(facts.attributes for facts in self.classes.values())]
        return {name for names in held for name, value in names.items() if value.is_a(ANY_ARGS)}


def find_sites(tree: ast.Module, *, file: str, text: str, rules: Rules) -> list[Site]:
    """All reads of one module that should come from another source, in the order of the file."""
    learned = _Learned()
    for _ in range(2):
        recorder = Recorder(file, text.split("\n"))
        mentions = Mentions(text, rules, learned.args_names())
        scope = Scope(name="<module>", bindings=learned.bindings_of(tree), ever=learned.module)
        walker = Statements(rules, recorder, scope, learned, mentions)
        walker.block(tree.body)
        walker.run_waiting()
    return recorder.sites()


class Statements(Assignments):
    """The half of the walk that looks at statements, in one scope; a nested scope has a walker of its own."""

    def __init__(
        self, rules: Rules, recorder: Recorder, scope: Scope, learned: _Learned, mentions: Mentions
    ) -> None:
        super().__init__(rules, recorder, scope)
        self.learned = learned
        self.mentions = mentions
        self.waiting: list[Callable[[], None]] = []
        self.visitors: dict[type[ast.stmt], Callable[[ast.stmt], None]] = {
            ast.FunctionDef: self._function,
            ast.AsyncFunctionDef: self._function,
            ast.ClassDef: self._class,
            ast.Assign: self._assign,
            ast.AnnAssign: self._annotated_assign,
            ast.AugAssign: self._augmented_assign,
            ast.Delete: self._delete,
            ast.For: self._for,
            ast.AsyncFor: self._for,
            ast.While: self._while,
            ast.If: self._if,
            ast.With: self._with,
            ast.AsyncWith: self._with,
            ast.Try: self._try,
            ast.TryStar: self._try,
            ast.Match: self._match,
            ast.Import: self._import,
            ast.ImportFrom: self._import,
        }

    def block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self.visitors.get(type(statement), self.parts)(statement)

    def run_waiting(self) -> None:
        """The bodies of functions met so far, now that all of the scope around them is known."""
        for run in self.waiting:
            run()
        self.waiting.clear()

    # Scopes

    def _function(self, node: ast.stmt) -> None:
        assert isinstance(node, Function)
        for decorator in node.decorator_list:
            self.value(decorator)
        defaults = self.defaults(node.args)
        getter = Kind.ARGS_GETTER | Kind.LIVE_GETTER
        named = bound_to(node.name, OPAQUE, self.rules)
        # A function that goes by a getter's name is the getter; by any other, it is not what its name says.
        self.scope.bind(node.name, named if named.is_a(getter) else OTHER)
        if self._is_worth_a_walk(node):
            self.waiting.append(lambda: self._run_function(node, defaults))

    def _run_function(self, node: Function, defaults: dict[str, Value]) -> None:
        is_method = self.scope.is_class and not is_static(node)
        given = self.given(node.args, defaults)
        self_name = next(iter(given), "") if is_method else ""
        scope = Scope(
            name=self.scope.qualified(node.name),
            bindings=self.learned.bindings_of(node),
            parent=self.scope,
            runs_later=True,
            owner=self.scope.owner if is_method else None,
            self_name=self_name,
            init_end=self._init_end(node) if is_method and node.name in CONSTRUCTORS else None,
        )
        for name, value in given.items():
            scope.bind(name, value)
        if self_name:
            worker = scope.owner is not None and scope.owner.per_worker
            scope.bind(self_name, Value(Kind.WORKER) if worker else OTHER)
        inside = self._inside(scope)
        inside.block(node.body)
        inside.run_waiting()

    def _is_worth_a_walk(self, node: ast.stmt) -> bool:
        return self.mentions.between(node.lineno, node.end_lineno or node.lineno)

    def _inside(self, scope: Scope) -> Statements:
        return Statements(self.rules, self.recorder, scope, self.learned, self.mentions)

    def _init_end(self, node: Function) -> Position | None:
        """Where the first initialisation call of a constructor ends."""
        calls = [
            (each.end_lineno or each.lineno, each.end_col_offset or 0)
            for each in of_this_scope(node.body)
            if isinstance(each, ast.Call) and called_name(each.func) in self.rules.init_calls
        ]
        return min(calls, default=None)

    def _class(self, node: ast.stmt) -> None:
        assert isinstance(node, ast.ClassDef)
        for outside in (*node.decorator_list, *node.bases, *(each.value for each in node.keywords)):
            self.value(outside)
        self.scope.bind(node.name, OTHER)
        facts = self._facts(node)
        if not self._is_worth_a_walk(node):
            return
        scope = Scope(
            name=self.scope.qualified(node.name),
            bindings=self.learned.bindings_of(node),
            parent=self.scope,
            is_class=True,
            owner=facts,
        )
        inside = self._inside(scope)
        inside.block(node.body)
        self.waiting.append(inside.run_waiting)

    def _facts(self, node: ast.ClassDef) -> ClassFacts:
        at = (node.lineno, node.col_offset)
        if at not in self.learned.classes:
            names = {each.id for each in node.bases if isinstance(each, ast.Name)}
            bases = [facts for facts in self.learned.classes.values() if facts.name in names]
            facts = ClassFacts(node.name, is_per_worker(node, bases, self.rules), bases)
            self.learned.classes[at] = facts
        return self.learned.classes[at]

    # Branches

    def _branches(self, *bodies: Callable[[], bool]) -> None:
        """Walk each body from where we stand now, and go on with all that can come out of them."""
        before = dict(self.scope.now)
        ends = []
        for body in bodies:
            self.scope.now = dict(before)
            if not body():
                ends.append(self.scope.now)
        self.scope.now = joined(ends) if ends else dict(before)

    def _arm(self, body: list[ast.stmt]) -> Callable[[], bool]:
        """A body of a branch; it answers whether nothing comes out of it."""

        def walk() -> bool:
            self.block(body)
            return bool(body) and isinstance(body[-1], ast.Return | ast.Raise)

        return walk

    def _if(self, node: ast.stmt) -> None:
        assert isinstance(node, ast.If)
        self.value(node.test)
        checking = (
            isinstance(node.test, ast.Name | ast.Attribute) and called_name(node.test) == "TYPE_CHECKING"
        )
        self._branches(self._arm([] if checking else node.body), self._arm(node.orelse))

    def _loop(self, node: _Loop, before_each: Callable[[], None]) -> None:
        """Walked twice, so that what one round binds is known in the next; once where that is nothing new, as each
        loop around doubles the work otherwise."""

        def rounds() -> bool:
            before_each()
            first = dict(self.scope.now)
            self.block(node.body)
            before_each()
            if self.scope.now != first:
                self.block(node.body)
            return False

        self._branches(rounds, self._arm([]))
        self.block(node.orelse)

    def _for(self, node: ast.stmt) -> None:
        assert isinstance(node, ast.For | ast.AsyncFor)
        self.value(node.iter)
        targets = [each for each in ast.walk(node.target) if isinstance(each, ast.Name)]

        def bind_targets() -> None:
            for each in targets:
                self.scope.bind(each.id, OTHER)  # an element of something, not the process's own

        self._loop(node, bind_targets)

    def _while(self, node: ast.stmt) -> None:
        assert isinstance(node, ast.While)
        self._loop(node, lambda: self.parts(ast.Expr(node.test)))

    def _with(self, node: ast.stmt) -> None:
        assert isinstance(node, ast.With | ast.AsyncWith)
        for item in node.items:
            value = self.value(item.context_expr)
            if item.optional_vars is not None:
                self.store(item.optional_vars, value)
        self.block(node.body)

    def _try(self, node: ast.stmt) -> None:
        assert isinstance(node, ast.Try | ast.TryStar)
        before = dict(self.scope.now)
        left = self._arm(node.body)()
        # An error may come before, or after, any of what the body bound.
        within = joined([before, self.scope.now])
        left = self._arm(node.orelse)() or left
        ends = [] if left else [self.scope.now]
        for handler in node.handlers:
            self.scope.now = dict(within)
            if handler.type is not None:
                self.value(handler.type)
            if handler.name:
                self.scope.bind(handler.name, OTHER)
            if not self._arm(handler.body)():
                ends.append(self.scope.now)
        self.scope.now = joined(ends or [within])
        self.block(node.finalbody)

    def _match(self, node: ast.stmt) -> None:
        assert isinstance(node, ast.Match)
        self.value(node.subject)
        self._branches(*(self._case(case) for case in node.cases), self._arm([]))

    def _case(self, case: ast.match_case) -> Callable[[], bool]:
        def walk() -> bool:
            for each in ast.walk(case.pattern):
                if isinstance(each, ast.MatchValue):
                    self.value(each.value)
            for name in bound_in(case.pattern):
                self.scope.bind(name, OTHER)
            if case.guard is not None:
                self.value(case.guard)
            return self._arm(case.body)()

        return walk
