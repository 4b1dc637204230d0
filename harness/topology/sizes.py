"""Topologies written as tests write them: `tp=8, dcp=4`, the names that suites use."""

from __future__ import annotations

from typing import Any

from harness.errors import TopologyError
from harness.topology.config import ParallelConfig
from harness.topology.names import hint

# A config spells sizes out.
FIELDS = {key: f"{key}_size" for key in ("tp", "pp", "dp", "attn_cp", "dcp", "ep", "moe_dp")}
FIELDS["enable_dp_attention"] = "enable_dp_attention"


def require_keys(*args: object, **sizes: object) -> None:
    """Raise TopologyError for a positional value, no size at all, or a key that is none, naming the nearest."""
    unknown = [*map(repr, args), *(key for key in sizes if key not in FIELDS)]
    if unknown:
        raise TopologyError(
            f"takes keywords of {', '.join(FIELDS)}, but was given {unknown[0]}{hint(unknown[0], FIELDS)}"
        )
    if not sizes:
        raise TopologyError(f"takes keywords of {', '.join(FIELDS)}, but was given none")


def config_of(**sizes: Any) -> ParallelConfig:
    """The topology of these sizes; raises TopologyError where it cannot be built."""
    require_keys(**sizes)
    return ParallelConfig(**{FIELDS[key]: value for key, value in sizes.items()})


def label_of(**sizes: object) -> str:
    """How test ids name it: `tp8-dcp4`."""
    return "-".join(f"{key}{value}" for key, value in sizes.items())
