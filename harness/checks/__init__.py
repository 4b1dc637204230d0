"""The checks by name. A suite may name a check of the language that has no module yet: its job is `not_run`."""

from types import MappingProxyType

from harness.checks import active, batch, capacity, caps, drained, parity, rows
from harness.checks.base import (
    Baseline,
    Check,
    CheckContext,
    CheckResult,
    MissingBaselineError,
    RequestGroup,
)

CHECKS: MappingProxyType[str, Check] = MappingProxyType(
    {
        "active": active,
        "parity": parity,
        "batch": batch,
        "capacity": capacity,
        "caps": caps,
        "rows": rows,
        "drained": drained,
    }
)

__all__ = [
    "CHECKS",
    "Baseline",
    "Check",
    "CheckContext",
    "CheckResult",
    "MissingBaselineError",
    "RequestGroup",
]
