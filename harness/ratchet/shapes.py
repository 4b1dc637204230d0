"""Questions about the form of a piece of syntax, which no name or value changes."""

from __future__ import annotations

import ast

_SEQUENCE = ast.Tuple | ast.List
_RUNS_LATER = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda


def called_name(function: ast.expr) -> str:
    """The last word of a dotted name; empty for anything else."""
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def is_static(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(called_name(each) == "staticmethod" for each in node.decorator_list)


def same_shape(target: ast.expr, value: ast.expr) -> bool:
    """Whether a tuple of targets meets a tuple of as many values, all the way down."""
    if not (isinstance(target, _SEQUENCE) and isinstance(value, _SEQUENCE)):
        return False
    if len(target.elts) != len(value.elts):
        return False
    if any(isinstance(each, ast.Starred) for each in (*target.elts, *value.elts)):
        return False
    return all(
        not isinstance(inner, _SEQUENCE) or same_shape(inner, part)
        for inner, part in zip(target.elts, value.elts, strict=True)
    )


def of_this_scope(body: list[ast.stmt]) -> list[ast.AST]:
    """All nodes that run when the body runs: none inside nested functions, classes and lambdas."""
    nodes: list[ast.AST] = []
    pending: list[ast.AST] = list(body)
    while pending:
        node = pending.pop()
        nodes.append(node)
        if not isinstance(node, _RUNS_LATER):
            pending.extend(ast.iter_child_nodes(node))
    return nodes
