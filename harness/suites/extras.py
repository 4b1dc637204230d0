"""Extras of harness that a job may need: a package that not every installation has.

A suite names them (`needs: {cpu: 2, extras: [triton]}`), and some arguments of the reference engine need one by
themselves. Where one is missing the job is `not_run`, with the command that installs it; it never fails at an import
in mid-job.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec


class Extra(StrEnum):
    """Those of `pyproject.toml` that jobs can need."""

    TRITON = "triton"
    NIXL = "nixl"

    @property
    def modules(self) -> tuple[str, ...]:
        """What it brings: any of these is enough. NIXL has a build for each CUDA, and all work without one too."""
        return {Extra.TRITON: ("triton",), Extra.NIXL: ("nixl_cu13", "nixl_cu12")}[self]

    @property
    def least(self) -> tuple[int, int]:
        """The oldest release that will do, as in `pyproject.toml`."""
        return {Extra.TRITON: (3, 5), Extra.NIXL: (1, 5)}[self]

    @property
    def found(self) -> str | None:
        """The module of it that is here, new enough; nothing is imported to find out."""
        return next((name for name in self.modules if _is_here(name) and self._is_new_enough(name)), None)

    @property
    def missing(self) -> str:
        """Why a job that needs it does not run where it is not installed."""
        return f"needs the extra [{self}]: pip install 'harness[{self}]'"

    def takes(self, release: str) -> bool:
        """Whether a release, such as `3.7.1+git`, is new enough."""
        return tuple(map(int, re.findall(r"\d+", release)[:2])) >= self.least

    def _is_new_enough(self, module: str) -> bool:
        try:
            return self.takes(version(module))
        except PackageNotFoundError:
            # Builds of other names bring it too, and only an import could say how old it is.
            return True


# Arguments of the reference engine that need an extra, by value.
NEEDED_BY: Mapping[tuple[str, str], Extra] = {
    ("attention-backend", "triton"): Extra.TRITON,
    ("disaggregation-transfer-backend", "nixl"): Extra.NIXL,
}


def installed_extras() -> frozenset[Extra]:
    """Those that are here."""
    return frozenset(extra for extra in Extra if extra.found)


def _is_here(module: str) -> bool:
    """An empty folder of that name, as a removed package leaves behind, is found as well, and has no origin."""
    spec = find_spec(module)
    return spec is not None and spec.origin is not None
