"""One lexical scope while it is walked: what its names hold now, and what they ever held.

A nested function runs later, so it sees what a name *ever* held in the scopes around it; a class body runs at once, so
it sees what the name holds *now*.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.ratchet.bindings import Bindings
from harness.ratchet.classes import ClassFacts
from harness.ratchet.values import OTHER, Value

# Line and column of a node, as `ast` counts them.
Position = tuple[int, int]


@dataclass(slots=True, kw_only=True)
class Scope:
    """`name` is the qualified name told in reports; `self_name` how a method calls its object; `init_end` where the
    first initialisation call of a constructor ends."""

    name: str
    bindings: Bindings
    parent: Scope | None = None
    runs_later: bool = False
    is_class: bool = False
    owner: ClassFacts | None = None
    self_name: str = ""
    init_end: Position | None = None
    now: dict[str, Value] = field(default_factory=dict)
    ever: dict[str, Value] = field(default_factory=dict)

    def look_up(self, name: str) -> Value | None:
        """What `name` was bound to here or around here; None where nothing binds it but its own meaning."""
        if name in self.now:
            return self.now[name]
        if name in self.bindings.local and self.runs_later:
            return OTHER  # read before it is bound, which raises
        return self._outer(name, later=self.runs_later)

    def _outer(self, name: str, *, later: bool) -> Value | None:
        scope = self.parent
        while scope is not None:
            held = scope.ever if later else scope.now
            # A class body is no scope around its methods.
            if not (scope.is_class and later) and name in held:
                return held[name]
            later = later or scope.runs_later
            scope = scope.parent
        return None

    def bind(self, name: str, value: Value) -> None:
        self.now[name] = value
        home = self._home(name)
        home.ever[name] = home.ever[name] | value if name in home.ever else value

    def _home(self, name: str) -> Scope:
        """The scope whose name it is: another one after `global` or `nonlocal`."""
        if name in self.bindings.outer_global:
            return self.module()
        if name in self.bindings.outer_nonlocal:
            scope = self.parent
            while scope is not None and scope.parent is not None:
                if not scope.is_class and name in scope.bindings.local:
                    return scope
                scope = scope.parent
        return self

    def module(self) -> Scope:
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope

    def qualified(self, name: str) -> str:
        """The name of what is defined in it."""
        return name if self.parent is None else f"{self.name}.{name}"

    def method_owner(self) -> tuple[ClassFacts | None, str]:
        """The class whose method this is, or is nested in, and the name of its object there."""
        scope: Scope | None = self
        while scope is not None:
            if scope.owner is not None and not scope.is_class:
                return scope.owner, scope.self_name
            scope = scope.parent
        return None, ""
