"""Whether one `ParallelState` is a rank that exists: its numbers follow from each other.

Sources may contradict each other on purpose (`inject(seed=, ps=, live=)`), but none may contradict itself: a
test that injected DCP rank 3 into TP rank 4 of groups of 4 would prove nothing about any engine. The rules are
those by which `ParallelState.from_config` derives ranks. Used by `inject()` and `mock_worker()`, which refuse;
`verify_sources` and others that report rather than refuse take `contradictions`.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.errors import TopologyError
from harness.topology.state import ParallelState

_ATTENTION = "attention cuts each TP group into equal slices"
_ATTENTION_ORDER = "ranks of a TP group are ordered by attn_dp, attn_cp, attn_tp, the last fastest"
_DCP = "DCP groups are contiguous slices of equal size of each attention TP group"
_EXPERTS = "experts cut each TP group into equal slices"
_EXPERT_ORDER = "ranks of a TP group are ordered by moe_dp, moe_ep, moe_tp, the last fastest"
_DP_ATTENTION = "under DP attention the slices of attention are the DP ranks"


def contradictions(state: ParallelState) -> list[str]:
    """Every rule that the state breaks, each naming both numbers; empty for a rank that exists.

    Where sizes do not fit together, the ranks derived from them are not looked at.
    """
    return [
        *(list(_attention_sizes(state)) or _attention_ranks(state)),
        *(list(_dcp_size(state)) or _dcp_rank(state)),
        *(list(_expert_sizes(state)) or _expert_ranks(state)),
        *_dp_attention(state),
    ]


def require_consistent(state: ParallelState, *, source: str) -> None:
    """Raise TopologyError where `state`, which the caller calls `source`, contradicts itself."""
    if found := contradictions(state):
        raise TopologyError(f"{source} contradicts itself: {'; '.join(found)}")


def _attention_sizes(s: ParallelState) -> Iterator[str]:
    product = s.attn_tp_size * s.attn_cp_size * s.attn_dp_size
    if product != s.tp_size:
        yield f"tp_size is {s.tp_size}, but attn_tp_size * attn_cp_size * attn_dp_size is {product}: {_ATTENTION}"


def _attention_ranks(s: ParallelState) -> Iterator[str]:
    place = (s.attn_dp_rank * s.attn_cp_size + s.attn_cp_rank) * s.attn_tp_size + s.attn_tp_rank
    if place != s.tp_rank:
        yield (
            f"tp_rank is {s.tp_rank}, but attn_dp_rank {s.attn_dp_rank}, attn_cp_rank {s.attn_cp_rank} and"
            f" attn_tp_rank {s.attn_tp_rank} are those of tp_rank {place}: {_ATTENTION_ORDER}"
        )


def _dcp_size(s: ParallelState) -> Iterator[str]:
    if s.attn_tp_size % s.attn_dcp_size:
        yield f"attn_tp_size {s.attn_tp_size} is not divisible by attn_dcp_size {s.attn_dcp_size}: {_DCP}"


def _dcp_rank(s: ParallelState) -> Iterator[str]:
    derived = s.tp_rank % s.attn_dcp_size
    if s.attn_dcp_rank != derived:
        yield (
            f"attn_dcp_rank is {s.attn_dcp_rank}, but tp_rank {s.tp_rank} % attn_dcp_size {s.attn_dcp_size}"
            f" is {derived}: {_DCP}"
        )


def _expert_sizes(s: ParallelState) -> Iterator[str]:
    part = s.moe_ep_size * s.moe_dp_size
    if s.tp_size % part:
        yield f"tp_size {s.tp_size} is not divisible by moe_ep_size * moe_dp_size {part}: {_EXPERTS}"


def _expert_ranks(s: ParallelState) -> Iterator[str]:
    moe_tp_size = s.tp_size // (s.moe_ep_size * s.moe_dp_size)
    first = (s.moe_dp_rank * s.moe_ep_size + s.moe_ep_rank) * moe_tp_size
    if not first <= s.tp_rank < first + moe_tp_size:
        yield (
            f"tp_rank is {s.tp_rank}, but moe_dp_rank {s.moe_dp_rank} and moe_ep_rank {s.moe_ep_rank} are those"
            f" of tp_rank {first} to {first + moe_tp_size - 1}: {_EXPERT_ORDER}"
        )


def _dp_attention(s: ParallelState) -> Iterator[str]:
    if s.attn_dp_size == 1:
        return
    for part in ("size", "rank"):
        dp, attn_dp = getattr(s, f"dp_{part}"), getattr(s, f"attn_dp_{part}")
        if dp != attn_dp:
            yield f"dp_{part} is {dp}, but attn_dp_{part} is {attn_dp}: {_DP_ATTENTION}"
