"""The checks by name. A suite may name a check of the language that has no module yet: its job is `not_run`."""

from types import MappingProxyType

from harness.checks import (
    accuracy,
    active,
    batch,
    capacity,
    caps,
    decode_sanity,
    drained,
    interrupt,
    parity,
    rows,
    sources,
    transfer,
)
from harness.checks.asks import Ask, QuestionAsk, RequestGroup
from harness.checks.base import (
    Baseline,
    BaselineUse,
    Check,
    CheckContext,
    CheckResult,
    MissingBaselineError,
)

CHECKS: MappingProxyType[str, Check] = MappingProxyType(
    {
        "active": active,
        "sources": sources,
        "parity": parity,
        "batch": batch,
        "capacity": capacity,
        "caps": caps,
        "rows": rows,
        "decode_sanity": decode_sanity,
        "accuracy": accuracy,
        "transfer": transfer,
        "drained": drained,
        "interrupt": interrupt,
    }
)

__all__ = [
    "CHECKS",
    "Ask",
    "Baseline",
    "BaselineUse",
    "Check",
    "CheckContext",
    "CheckResult",
    "MissingBaselineError",
    "QuestionAsk",
    "RequestGroup",
]
