"""Which containment this machine gets: the strongest that works, unless one is forced."""

from __future__ import annotations

import os

from harness.containment.base import Containment
from harness.containment.guard import Guard
from harness.containment.pidns import PidNamespace
from harness.errors import UsageError

VARIABLE = "HARNESS_CONTAINMENT"


def choose_containment(forced: str | None = None) -> Containment:
    """`forced`, else `$HARNESS_CONTAINMENT`, else `pidns` where it works, else `guard`.

    Raises UsageError for an unknown name, and when a forced `pidns` cannot work here.
    """
    wanted = forced or os.environ.get(VARIABLE) or None
    if wanted == "guard":
        return Guard()
    if wanted == "pidns":
        return PidNamespace.probed()
    if wanted is not None:
        raise UsageError(f"unknown containment {wanted!r}: allowed are pidns and guard")
    try:
        return PidNamespace.probed()
    except UsageError:
        return Guard()
