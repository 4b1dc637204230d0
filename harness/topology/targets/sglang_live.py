"""Adapter for SGLang with a ParallelState per worker and live accessors (0.5.17 to 0.5.20).

Seed: the global server args. Ps: the package's own ParallelState. Live: a scoped override of the accessors.
"""

from __future__ import annotations

import importlib
from dataclasses import fields
from typing import Any

from harness.errors import InjectionError
from harness.topology.config import ParallelConfig
from harness.topology.state import ParallelState
from harness.topology.targets.detect import STATE_MODULE
from harness.topology.targets.frames import CONTEXT_MODULE
from harness.topology.targets.values import config_values, dcp_values, group_values

# Fields under an older name: 0.5.17 has a size without a rank, outside the attention block.
_OLD_NAMES = {"dcp_size": "attn_dcp_size"}


def publish(seed: ParallelConfig, *, rank: int) -> Any:
    """The package's own way to publish server args without a model; they are what `get_server_args()` answers."""
    context = importlib.import_module(CONTEXT_MODULE).get_context()
    return context.override_server_args(**config_values(seed)).install()


def live_values(live: ParallelState, dcp_group: object) -> dict[str, Any]:
    """What `get_parallel()` shall answer. Where DCP is off the loud names stay the package's: they raise."""
    values = group_values(live) | {
        "world_size": live.tp_size * live.pp_size,
        "world_rank": live.pp_rank * live.tp_size + live.tp_rank,
        **dcp_values(live, dcp_group),
    }
    if live.attn_dcp_size == 1 and not _reads_the_group("dcp_size"):
        values["dcp_size"] = 1
    return values


def package_state(ps: ParallelState) -> Any:
    """`ps` as the package's class. Raises InjectionError for a field that harness cannot fill."""
    kind = importlib.import_module(STATE_MODULE).ParallelState
    known = {field.name for field in fields(ParallelState)}
    values: dict[str, Any] = {}
    for field in fields(kind):
        name = field.name if field.name in known else _OLD_NAMES.get(field.name)
        if name is None:
            raise InjectionError(
                f"sglang's ParallelState has a field {field.name!r} that harness does not know"
            )
        values[field.name] = getattr(ps, name)
    values["gpu_id"] = values["gpu_id"] or 0  # the package has a number there, also on a machine without GPUs
    return kind(**values)


def _reads_the_group(name: str) -> bool:
    """False where a release (0.5.19) answers the name from the published config."""
    module = importlib.import_module(CONTEXT_MODULE)
    return isinstance(getattr(module.ParallelContext, name, None), property)
