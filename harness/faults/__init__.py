"""Known DCP bugs, planted on purpose: each replaces a seam of the reference engine before the fork."""

from harness.faults.catalogue import FAULTS, get_fault
from harness.faults.fault import Fault, Reach

__all__ = ["FAULTS", "Fault", "Reach", "get_fault"]
