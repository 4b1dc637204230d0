"""What a mistyped name was meant to be: every error of this room that meets one suggests the nearest."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import ParamSpec, TypeVar

from harness.errors import TopologyError, UnansweredReadError, UnknownNameError

P = ParamSpec("P")
R = TypeVar("R")

# Below it a suggestion helps nobody: `rank` for `bank` still does (0.75), `tp` for `pages` does not.
_ALIKE = 0.6
# From it on a name is taken for a slip of the other: `ranks` for `rank` (0.89), but not `tp_rank` (0.73).
SLIP = 0.75


def nearest(name: str, names: Iterable[str], *, alike: float = _ALIKE) -> str | None:
    """The one of `names` that `name` most looks like, letters in another order first; None if none does."""
    known = list(names)
    swapped = swapped_letters(name, known)
    close = [swapped] if swapped else difflib.get_close_matches(name, known, cutoff=alike)
    return close[0] if close else None


def swapped_letters(name: str, names: Iterable[str]) -> str | None:
    """The one of `names` that has the letters of `name` in any order."""
    return next((other for other in names if sorted(other) == sorted(name)), None)


def hint(name: str, names: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or nothing."""
    near = nearest(name, names)
    return "" if near is None else f"; did you mean {near!r}?"


def unknown_name(owner: str, name: str, places: Mapping[str, str]) -> UnknownNameError:
    """The error for reading `name` of something that has others, each found under its place; `owner` begins it."""
    message, place = _not_there(owner, name, places)
    return UnknownNameError(message, nearest=place)


def unanswered_read(owner: str, name: str, places: Mapping[str, str]) -> UnansweredReadError:
    """As `unknown_name`, for the name of a number of the topology: no default may stand in for it."""
    message, place = _not_there(owner, name, places)
    return UnansweredReadError(message, nearest=place)


def _not_there(owner: str, name: str, places: Mapping[str, str]) -> tuple[str, str | None]:
    near = nearest(name, places)
    place = None if near is None else places[near]
    meant = "" if place is None else f"; did you mean {place!r}?"
    return f"{owner} has no {name!r}{meant}", place


def known_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: a keyword that `function` does not take raises TopologyError with the nearest one it does."""
    known = list(inspect.signature(function).parameters)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in known:
                raise TopologyError(f"{function.__name__}() has no argument {name!r}{hint(name, known)}")
        return function(*args, **kwargs)

    return call
