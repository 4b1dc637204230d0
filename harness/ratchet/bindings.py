"""Which names a function or module binds itself, by Python's own rule: anywhere in its body, but in no nested scope."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True, slots=True)
class Bindings:
    """`local` are names of the scope's own; `outer` those that it stores into a scope around it."""

    local: frozenset[str]
    outer_global: frozenset[str]
    outer_nonlocal: frozenset[str]


def parameters(arguments: ast.arguments) -> Iterator[ast.arg]:
    """All of them, in the order they are written."""
    yield from (*arguments.posonlyargs, *arguments.args)
    yield from (arguments.vararg,) if arguments.vararg else ()
    yield from arguments.kwonlyargs
    yield from (arguments.kwarg,) if arguments.kwarg else ()


def bindings(body: list[ast.stmt], arguments: ast.arguments | None = None) -> Bindings:
    """Of a body, with the parameters of its function if it is one's."""
    names = {each.arg for each in parameters(arguments)} if arguments else set()
    to_global: set[str] = set()
    to_nonlocal: set[str] = set()
    pending: list[ast.AST] = list(body)
    while pending:
        node = pending.pop()
        names.update(_bound_by(node))
        if isinstance(node, ast.Global):
            to_global.update(node.names)
        elif isinstance(node, ast.Nonlocal):
            to_nonlocal.update(node.names)
        pending.extend(_inside(node))
    outer = to_global | to_nonlocal
    return Bindings(frozenset(names - outer), frozenset(to_global), frozenset(to_nonlocal))


def bound_in(pattern: ast.pattern) -> list[str]:
    """The names that a pattern of a `case` binds."""
    return [name for node in ast.walk(pattern) for name in _bound_by(node)]


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """The children that are of the same scope, but for those that bind nothing: half of all nodes."""
    if isinstance(node, _SCOPES):
        return
    if isinstance(node, _COMPREHENSIONS):
        # Its targets are its own, but an assignment expression in it binds outside.
        yield from (each for each in ast.walk(node) if isinstance(each, ast.NamedExpr))
        return
    # `ast.iter_child_nodes` by hand: through its two generators it is a sixth of a whole scan.
    for name in node._fields:
        child = getattr(node, name, None)
        if isinstance(child, list):
            yield from (each for each in child if isinstance(each, ast.AST) and not _binds_nothing(each))
        elif isinstance(child, ast.AST) and not _binds_nothing(child):
            yield child


def _binds_nothing(node: ast.AST) -> bool:
    return isinstance(node, ast.expr_context | ast.Constant) or (
        isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    )


def _bound_by(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            yield from (each.asname or each.name.partition(".")[0] for each in names)
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
        case ast.MatchMapping(rest=str(name)):
            yield name
