"""Which platforms can build which topology: the one rule that the sizes alone do not tell.

Asked before anything is launched or built. The arithmetic of a topology is the same everywhere, so a
`ParallelConfig` itself knows no platform.
"""

from __future__ import annotations

import re
from enum import StrEnum

from harness.errors import TopologyError
from harness.topology.config import ParallelConfig


class Platform(StrEnum):
    """What ranks run on, by the names engines use."""

    CPU = "cpu"
    CUDA = "cuda"
    HIP = "hip"
    NPU = "npu"
    XPU = "xpu"


# Where a target builds DCP groups: each release from the one named, newest first; "" is any release.
# Read in SGLang's own guard (`initialize_model_parallel`) in 0.5.17, 0.5.18 and 0.5.23; releases between the
# last two were not read, and count as the older one.
_DCP_PLATFORMS: dict[str, tuple[tuple[str, frozenset[Platform]], ...]] = {
    "reference": (("", frozenset(Platform)),),
    "sglang": (
        ("0.5.23", frozenset({Platform.CUDA, Platform.HIP, Platform.NPU, Platform.XPU})),
        ("", frozenset({Platform.CUDA, Platform.HIP})),
    ),
}


def dcp_platforms(target: str) -> frozenset[Platform]:
    """Where this target can run dcp > 1. `target` is a name, or `name@version`, as a number or as upstream tags
    it (`v0.5.18`); without one, or with a branch, the newest release counts.

    Raises TopologyError for a target of which nothing is known.
    """
    name, _, version = target.partition("@")
    if name not in _DCP_PLATFORMS:
        raise TopologyError(f"nothing is known of target {target!r}; there are {', '.join(_DCP_PLATFORMS)}")
    asked = _numbers(version)
    return next(
        platforms for first, platforms in _DCP_PLATFORMS[name] if not asked or asked >= _numbers(first)
    )


def require_platform(config: ParallelConfig, *, platform: Platform | str, target: str) -> None:
    """Raise TopologyError where `target` cannot build this topology on `platform`, or either is unknown."""
    try:
        platform = Platform(platform)
    except ValueError as error:
        raise TopologyError(f"there is no platform {platform!r}; there are {', '.join(Platform)}") from error
    allowed = dcp_platforms(target)
    if config.dcp_size > 1 and platform not in allowed:
        raise TopologyError(
            f"dcp_size is {config.dcp_size}, but {target} builds DCP groups on {', '.join(sorted(allowed))} only,"
            f" not on {platform}"
        )


def _numbers(version: str) -> list[int]:
    """The release of a version, so that 0.5.9 comes before 0.5.18; empty for what is none: a branch, a commit."""
    release = re.match(r"[vV]?(\d+(\.\d+)+)", version)
    return [int(part) for part in release[1].split(".")] if release else []
