"""Pure scheduling: pools, what cannot run and why, the policy, the simulated plan."""

from harness.planning.needs import candidates, cannot_run, devices_needed
from harness.planning.policy import Placement, Policy
from harness.planning.pools import DeviceInventory, ExecutorKind, Pool, ReadyPool, parse_pools, ready_pools
from harness.planning.simulate import PlannedJob, plan, prove

__all__ = [
    "DeviceInventory",
    "ExecutorKind",
    "Placement",
    "PlannedJob",
    "Policy",
    "Pool",
    "ReadyPool",
    "candidates",
    "cannot_run",
    "devices_needed",
    "parse_pools",
    "plan",
    "prove",
    "ready_pools",
]
