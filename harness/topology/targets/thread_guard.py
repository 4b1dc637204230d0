"""While a block is open, only the thread and tasks that stand in it may read the package's topology.

The guard is put on the one object that `get_parallel()` returns, by its class: consumers that hold the object or
imported `get_parallel` by name meet it as well, and nothing of the package is replaced.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from harness.topology.targets.frames import require_innermost


def guard(parallel: Any) -> None:
    """Called inside a frame, which takes the guard off again when it closes."""
    kind: Any = type(parallel)
    if not hasattr(kind, "_harness_guard"):
        object.__setattr__(parallel, "__class__", _guarded(kind))


@cache
def _guarded(kind: Any) -> Any:
    read = kind.__getattribute__

    def __getattribute__(self: Any, name: str) -> Any:
        if not name.startswith("__"):  # probes of Python itself, such as isinstance, read no topology
            require_innermost()
        return read(self, name)

    body = {"__slots__": (), "__getattribute__": __getattribute__, "_harness_guard": True}
    guarded = type(f"Guarded{kind.__name__}", (kind,), body)
    # The package itself lists the slots of the object's class to save its state.
    setattr(guarded, "__slots__", kind.__slots__)  # noqa: B010 - a plain assignment does not type-check
    return guarded
