"""Which ranks talk to each other: the rank lists from which process groups are built, for every axis.

Pure functions of the config; every rank computes the same lists in the same order, as collective group
construction demands. Ranks are numbers in one replica, `pp_rank * tp_size + tp_rank`; only the table of
replicas itself counts over all of them. Each rank is in exactly one group of an axis, and its place in that
group is its rank in that axis: what `ParallelState.from_config` says of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import chain, pairwise
from typing import Any, TypeGuard

from harness.errors import TopologyError
from harness.topology.config import ParallelConfig


class Axis(StrEnum):
    """A kind of group; named as the fields of ParallelState are, and `moe_tp`, the ranks sharing one expert."""

    TP = "tp"
    PP = "pp"
    DP = "dp"
    ATTN_TP = "attn_tp"
    ATTN_CP = "attn_cp"
    ATTN_DCP = "attn_dcp"
    ATTN_DP = "attn_dp"
    MOE_TP = "moe_tp"
    MOE_EP = "moe_ep"
    MOE_DP = "moe_dp"


def group_table(config: ParallelConfig, axis: Axis | str) -> list[list[int]]:
    """The groups of one axis; groups of one where that axis is off. Raises TopologyError for an unknown axis.

    `dp` are the slices of attention under DP attention; without it they are replicas, engines that never talk
    to each other: group i then holds rank i of each, numbered `dp_rank * world_size + rank`.
    """
    try:
        axis = Axis(axis)
    except ValueError as error:
        raise TopologyError(f"there is no axis {axis!r}; there are {', '.join(Axis)}") from error
    ranks = config.world_size
    if axis is Axis.DP and not config.enable_dp_attention:
        ranks *= config.dp_size
    size, stride = _spread(config)[axis]
    return _deal(ranks, size=size, stride=stride)


def all_groups(config: ParallelConfig) -> dict[Axis, list[list[int]]]:
    """The groups of every axis."""
    return {axis: group_table(config, axis) for axis in Axis}


def tp_groups(config: ParallelConfig) -> list[list[int]]:
    """One group per pipeline stage."""
    return group_table(config, Axis.TP)


def dcp_groups(config: ParallelConfig) -> list[list[int]]:
    """Contiguous slices of `dcp_size` ranks of each TP group; groups of one where DCP is off.

    Contiguous, not strided: the TP rank decides which heads a rank computes, and a group must hold
    neighbouring heads, since they share KV heads.
    """
    return group_table(config, Axis.ATTN_DCP)


def group_of(groups: Sequence[Sequence[int]], rank: int) -> list[int]:
    """The group that `rank` is in. Raises TopologyError where it is in none, or in several."""
    found = [group for group in groups if rank in group]
    if len(found) != 1:
        raise TopologyError(
            f"rank {rank} is in {len(found)} of the groups {[list(g) for g in groups]}, not in one"
        )
    return list(found[0])


def check_groups(config: ParallelConfig, axis: Axis | str, groups: Sequence[Sequence[int]]) -> None:
    """Raise TopologyError unless `groups`, an engine's own, are those of this axis; the order of groups is free.

    The message says how they differ: strided where contiguous is meant or the other way round, ranks in another
    order, a rank missing or in two groups, groups of another size, or groups that mix other axes.
    """
    expected = group_table(config, axis)
    found = sorted(_lists_of_ranks(groups))
    if found != sorted(expected):
        raise TopologyError(f"{axis} groups {found} {_difference(axis, found, expected)}")


def _lists_of_ranks(groups: object) -> list[list[int]]:
    """The groups as lists, once they are known to be groups of numbers."""
    if not _is_sequence(groups):
        raise TopologyError(f"groups is {groups!r}, but must be a list of lists of ranks")
    for group in groups:
        if not _is_sequence(group) or any(type(rank) is not int for rank in group):
            raise TopologyError(f"groups holds {group!r}, but a group must be a list of ranks, integers")
    return [list(group) for group in groups]


def _is_sequence(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _difference(axis: str, found: list[list[int]], expected: list[list[int]]) -> str:
    """How the found groups differ from those expected, the most telling difference first."""
    held, wanted = sorted(chain(*found)), sorted(chain(*expected))
    if held != wanted:
        odd = sorted({rank for rank in {*held, *wanted} if held.count(rank) != wanted.count(rank)})
        return f"do not hold each of {len(wanted)} ranks once: see ranks {odd}"
    sizes, size = sorted({len(group) for group in found}), len(expected[0])
    if sizes != [size]:
        return f"have sizes {sizes}, but {axis}_size is {size}"
    if {frozenset(group) for group in found} == {frozenset(group) for group in expected}:
        return f"hold the right ranks in another order, expected {expected}: {_BREAKS_ORDER}"
    return _by_stride(found, expected)


def _by_stride(found: list[list[int]], expected: list[list[int]]) -> str:
    """In words, two tables of equal sizes that pair ranks differently."""
    step, wanted = _stride(found), _stride(expected)
    if wanted == 1 and step is not None:
        return f"are strided (step {step}), but must be contiguous {expected}: {_BREAKS_STRIDED}"
    if step == 1:
        return f"are contiguous, but must be strided (step {wanted}) {expected}: {_BREAKS_CONTIGUOUS}"
    return f"pair other ranks than {expected}: a group mixes ranks that differ in another axis"


# What goes wrong with each look-alike, in the words of the message.
_BREAKS_STRIDED = (
    "a group would hold heads that are not neighbours, which share no KV head, and rank % size would not be the"
    " rank in the group"
)
_BREAKS_CONTIGUOUS = (
    "a group would hold the ranks of another axis, and sum or gather what does not belong together"
)
_BREAKS_ORDER = "a rank would take its neighbour's part of whatever is gathered or scattered"


def _stride(groups: list[list[int]]) -> int | None:
    """The step from each member to the next, where it is the same everywhere."""
    steps = {after - before for group in groups for before, after in pairwise(group)}
    return steps.pop() if len(steps) == 1 else None


def _spread(config: ParallelConfig) -> dict[Axis, tuple[int, int]]:
    """Of each axis: how many ranks a group has, and how far apart neighbours in it are."""
    attention_slice = config.attn_tp_size * config.attn_cp_size
    expert_slice = config.moe_tp_size * config.ep_size
    return {
        Axis.TP: (config.tp_size, 1),
        Axis.PP: (config.pp_size, config.tp_size),
        Axis.DP: (config.dp_size, attention_slice if config.enable_dp_attention else config.world_size),
        Axis.ATTN_TP: (config.attn_tp_size, 1),
        Axis.ATTN_CP: (config.attn_cp_size, config.attn_tp_size),
        Axis.ATTN_DCP: (config.dcp_size, 1),
        Axis.ATTN_DP: (config.attn_dp_size, attention_slice),
        Axis.MOE_TP: (config.moe_tp_size, 1),
        Axis.MOE_EP: (config.ep_size, config.moe_tp_size),
        Axis.MOE_DP: (config.moe_dp_size, expert_slice),
    }


def _deal(ranks: int, *, size: int, stride: int) -> list[list[int]]:
    """Cut the ranks into blocks of `size * stride`, and each block into groups of ranks `stride` apart."""
    block = size * stride
    return [
        list(range(first, start + block, stride))
        for start in range(0, ranks, block)
        for first in range(start, start + stride)
    ]
