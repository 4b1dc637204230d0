"""Process containment, deadlines, and what the machine's devices are."""

from harness.containment.base import Contained, Containment, Ended
from harness.containment.choose import choose_containment
from harness.containment.deadlines import Deadline, check_nesting
from harness.containment.devices import NvmlInventory, NvmlUnavailable
from harness.containment.guard import Guard
from harness.containment.pidns import PidNamespace
from harness.containment.tree import KILL_SECONDS

__all__ = [
    "KILL_SECONDS",
    "Contained",
    "Containment",
    "Deadline",
    "Ended",
    "Guard",
    "NvmlInventory",
    "NvmlUnavailable",
    "PidNamespace",
    "check_nesting",
    "choose_containment",
]
