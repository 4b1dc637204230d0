"""Which SGLang is importable here, and which of its two topology interfaces it has.

The generation is found by what the package has, never by its version string: a checkout of any commit between
two releases is told apart as well.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec

from harness.errors import InjectionError

STATE_MODULE = "sglang.srt.distributed.parallel_state_wrapper"


class Generation(StrEnum):
    """How the package says what a worker's topology is."""

    LIVE = "live"
    """A `ParallelState` per worker, and accessors that look at the process groups (0.5.17, 0.5.18)."""
    PUBLISHED = "published"
    """Configuration and ranks are published to the process; no `ParallelState` (0.5.21 and later)."""


@dataclass(frozen=True, slots=True)
class SglangTarget:
    """The package that this process would import; `str()` is how reports name it."""

    version: str
    generation: Generation

    def __str__(self) -> str:
        return f"sglang {self.version}"


def detect() -> SglangTarget:
    """Called before anything of the package is touched. Raises InjectionError where it is not importable, or
    has neither interface."""
    spec = find_spec("sglang")
    if spec is None or spec.origin is None:  # without a file it is a mere folder of that name on the path
        raise InjectionError(
            "target sglang: the package is not importable here; build an environment with"
            " 'make sglang VERSION=0.5.18' and run in it with '--target sglang'"
        )
    version = str(importlib.import_module("sglang.version").__version__)
    return SglangTarget(version, _generation(version))


def _generation(version: str) -> Generation:
    if find_spec(STATE_MODULE) is not None:
        return Generation.LIVE
    if hasattr(importlib.import_module("sglang.srt.runtime_context"), "SpawnRanks"):
        return Generation.PUBLISHED
    raise InjectionError(
        f"sglang {version} has neither a ParallelState nor published ranks: too old, or no adapter for it yet"
    )
