"""Which of the packages that NIXL's Python API comes in is installed."""

from __future__ import annotations

import importlib.util

# As the wheels name it, newest CUDA first; any of them works without CUDA too.
NIXL_MODULES = ("nixl_cu13", "nixl_cu12")


def nixl_module() -> str | None:
    """The first that is found, without importing it; None where there is none. A folder alone is no package."""
    found = ((name, importlib.util.find_spec(name)) for name in NIXL_MODULES)
    return next((name for name, spec in found if spec is not None and spec.origin is not None), None)
