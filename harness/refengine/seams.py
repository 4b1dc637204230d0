"""Named seams: the few plain functions whose meaning a DCP bug changes.

A function registered with `@seam("name")` is called as usual by the engine; `patch` replaces what the
name stands for in this process. Whoever patches does so before ranks are forked, so that every rank runs
the same code. The engine itself patches nothing and knows no faults.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {}


def seam(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Register a function under `name`; callers go through the table, so a later `patch` reaches them."""

    def register(function: Callable[P, R]) -> Callable[P, R]:
        if name in _IMPLEMENTATIONS:
            raise ValueError(f"seam {name!r} is registered twice")
        _IMPLEMENTATIONS[name] = function

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            result: R = _IMPLEMENTATIONS[name](*args, **kwargs)
            return result

        return call

    return register


def patch(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Replace what `name` stands for; returns what it stood for before.

    Raises KeyError with the known names, since a fault that patches nothing would look like a healthy engine.
    """
    before = _stands_for(name)
    _IMPLEMENTATIONS[name] = function
    return before


def wrap(name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace what `name` stands for by `around` of it: where only its arguments or its result change.

    Raises KeyError as `patch` does.
    """
    _IMPLEMENTATIONS[name] = around(_stands_for(name))


def _stands_for(name: str) -> Callable[..., Any]:
    if name not in _IMPLEMENTATIONS:
        raise KeyError(f"no seam {name!r}; there are: {', '.join(sorted(_IMPLEMENTATIONS))}")
    return _IMPLEMENTATIONS[name]
