"""Extras of harness that a job may need: a package that not every installation has.

A suite names them (`needs: {cpu: 2, extras: [triton]}`). Where one is missing the job is `not_run`, with the
command that installs it; it never fails at an import in mid-job.
"""

from __future__ import annotations

from enum import StrEnum
from importlib.util import find_spec


class Extra(StrEnum):
    """Those of `pyproject.toml` that jobs can need."""

    TRITON = "triton"
    NIXL = "nixl"

    @property
    def modules(self) -> tuple[str, ...]:
        """What it brings: any of these is enough. NIXL has a build for each CUDA, and all work without one too."""
        return {Extra.TRITON: ("triton",), Extra.NIXL: ("nixl_cu12", "nixl_cu13")}[self]

    @property
    def missing(self) -> str:
        """Why a job that needs it does not run where it is not installed."""
        return f"needs the extra [{self}]: pip install 'harness[{self}]'"


def installed_extras() -> frozenset[Extra]:
    """Those that can be imported here; nothing is imported to find out."""
    return frozenset(extra for extra in Extra if any(map(find_spec, extra.modules)))
