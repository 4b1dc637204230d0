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
    def module(self) -> str:
        """What it brings; `nixl-cu12` alone is enough, without the `nixl` that pulls in every CUDA's build."""
        return {Extra.TRITON: "triton", Extra.NIXL: "nixl_cu12"}[self]

    @property
    def missing(self) -> str:
        """Why a job that needs it does not run where it is not installed."""
        return f"needs the extra [{self}]: pip install 'harness[{self}]'"


def installed_extras() -> frozenset[Extra]:
    """Those that can be imported here; nothing is imported to find out."""
    return frozenset(extra for extra in Extra if find_spec(extra.module) is not None)
