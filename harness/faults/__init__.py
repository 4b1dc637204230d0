"""Known DCP bugs, planted on purpose: each replaces a seam of the reference engine before the fork."""

from harness.faults.catalogue import FAULTS, Fault, get_fault

__all__ = ["FAULTS", "Fault", "get_fault"]
