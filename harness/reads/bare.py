"""Objects of the package without their constructors, and drives that end where the interesting call is made.

For probes: a method is driven on a real instance of its class that carries only what the method wants, so that
properties and helpers of the class are the package's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import Mock

from harness.errors import EngineError


class _Reached(BaseException):
    """Ends a drive. No `Exception`, so that handlers of the package let it pass."""


@dataclass(frozen=True, slots=True)
class Call:
    """How a replaced function was called."""

    args: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)


class LastCall:
    """Replaces a function at which a drive ends: keeps its arguments, and runs nothing that comes after it."""

    def __init__(self) -> None:
        self._call: Call | None = None

    def __call__(self, *args: Any, **named: Any) -> Any:
        self._call = Call(args, named)
        raise _Reached

    def of(self, function: Callable[..., Any], *args: Any, **named: Any) -> Call:
        """Run `function` until this is called. Raises EngineError where it never is."""
        self._call = None
        with suppress(_Reached):
            function(*args, **named)
        if self._call is None:
            told = getattr(function, "__qualname__", function)
            raise EngineError(f"{told} returned without the call that was waited for")
        return self._call


class Recorder:
    """Replaces a function or class: answers None, and keeps every call."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def __call__(self, *args: Any, **named: Any) -> None:
        self.calls.append(Call(args, named))


def bare(cls: type, **attributes: Any) -> Any:
    """An instance of `cls` that no constructor has seen, with these attributes.

    Those that a class with slots does not declare in this release are left out: it cannot read them either.
    """
    made: Any = object.__new__(cls)
    for name, value in attributes.items():
        if hasattr(made, "__dict__") or hasattr(cls, name):
            object.__setattr__(made, name, value)
    return made


class StandIn(Mock):
    """Stands for whatever a drive wants beside the topology: attributes and calls answer with more of it.

    It is no number, no truth value and has no length: whatever would take it for one raises EngineError, so that
    no consumer is seen to read something which a stand-in made up. What a function really looks at is given by name.
    """

    def _refuse(self, *_: object) -> Any:
        name = self._extract_mock_name()
        raise EngineError(f"the stand-in {name} was taken for a number or a truth value")

    __bool__ = __len__ = __int__ = __index__ = __float__ = __complex__ = _refuse
    __round__ = __trunc__ = __floor__ = __ceil__ = __neg__ = __pos__ = __abs__ = __invert__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __pow__ = __rpow__ = _refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = _refuse
    __mod__ = __rmod__ = __divmod__ = __rdivmod__ = _refuse
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _refuse
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _refuse

    def __eq__(self, other: object) -> bool:
        return bool(self._refuse()) if type(other) in (int, float) else self is other

    __hash__ = Mock.__hash__

    def __getitem__(self, key: object) -> StandIn:
        return StandIn(name=f"{self._extract_mock_name()}[{key!r}]")


class View:
    """Another object with some of its attributes answered apart; it stays as it is."""

    def __init__(self, base: Any, **apart: Any) -> None:
        vars(self).update(apart)
        self._base = base

    def __getattr__(self, name: str) -> Any:
        return getattr(self._base, name)


def times(total: int, unit: int) -> int:
    """How many units a total holds. Raises EngineError where it is no whole number of them."""
    if total % unit:
        raise EngineError(f"{total} is no multiple of {unit}, so no source scaled it")
    return total // unit
