"""Which ranks talk to each other: the rank lists from which process groups are built.

Pure functions of the config; every rank computes the same lists in the same order, as collective group
construction demands. Ranks are numbers in one replica: `pp_rank * tp_size + tp_rank`.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.errors import TopologyError
from harness.topology.config import ParallelConfig


def tp_groups(config: ParallelConfig) -> list[list[int]]:
    """One group per pipeline stage."""
    return _slices(config.world_size, config.tp_size)


def dcp_groups(config: ParallelConfig) -> list[list[int]]:
    """Contiguous slices of `dcp_size` ranks of each TP group; groups of one where DCP is off.

    Contiguous, not strided: the TP rank decides which heads a rank computes, and a group must hold
    neighbouring heads, since they share KV heads.
    """
    return _slices(config.world_size, config.dcp_size)


def group_of(groups: Sequence[Sequence[int]], rank: int) -> list[int]:
    """The group that `rank` is in. Raises TopologyError where it is in none, or in several."""
    found = [group for group in groups if rank in group]
    if len(found) != 1:
        raise TopologyError(
            f"rank {rank} is in {len(found)} of the groups {[list(g) for g in groups]}, not in one"
        )
    return list(found[0])


def _slices(ranks: int, size: int) -> list[list[int]]:
    return [list(range(start, start + size)) for start in range(0, ranks, size)]
