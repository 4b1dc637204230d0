"""What the tests of a suite look at: harness's own functions, or those of a real package.

`harness run --target` chooses one for all jobs of a run. Each target but `reference` has a virtual environment
of the same name, so `python: sglang` says the same as `targets: [sglang]`.
"""

from __future__ import annotations

import difflib
import re
from enum import StrEnum

from harness.errors import UsageError

# What stands before the number in the name of a tag.
_TAG = re.compile(r"^[vV](?=\d)")


class Target(StrEnum):
    """`reference`: the functions of `harness.topology`; `sglang`: the package, in its own environment."""

    REFERENCE = "reference"
    SGLANG = "sglang"


def parse_target(given: str) -> tuple[Target, str | None]:
    """`sglang@0.5.18` → the target and its version, which is None where none is given; `sglang@v0.5.18`, as
    upstream tags it, is the same version.

    Raises UsageError for an unknown name, an empty version, and a version of the reference.
    """
    name, at, version = given.partition("@")
    if name not in list(Target):
        near = difflib.get_close_matches(name, list(Target), n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"allowed: {', '.join(Target)}"
        raise UsageError(f"unknown target {name!r}; {hint}")
    if at and not version:
        raise UsageError(f"--target {given}: the version is missing; allowed: {name}@0.5.18, or {name}")
    if version and name == Target.REFERENCE:
        raise UsageError(f"--target {given}: the reference is this harness itself and has no versions")
    return Target(name), _TAG.sub("", version) or None


def default_targets(python: str | None) -> tuple[Target, ...]:
    """Those of a suite that names none: the environment it asks for, if that is one of a target."""
    return (Target(python),) if python in list(Target) else (Target.REFERENCE,)
