"""What property tests of this room share: how many examples a rule gets, and any legal topology.

A rule gets 1,000 examples and topologies of up to 128 ranks. Mutation testing runs the room once per mutant and
asks for less, the same each time (HARNESS_HYPOTHESIS_PROFILE=mutation, set by `make mutation`).
"""

from __future__ import annotations

import os
from functools import cache

from hypothesis import settings
from hypothesis import strategies as st

from harness.topology import ParallelConfig, ParallelState

if os.environ.get("HARNESS_HYPOTHESIS_PROFILE") == "mutation":
    rule = settings(max_examples=50, deadline=None, derandomize=True, database=None)
    MAX_RANKS = 16
else:
    rule = settings(max_examples=1000, deadline=None)
    MAX_RANKS = 128


@cache
def factorings(number: int, parts: int) -> list[tuple[int, ...]]:
    """Every way to write the number as a product of so many factors, in order; found by trying."""
    if parts == 1:
        return [(number,)]
    return [
        (first, *rest)
        for first in range(1, number + 1)
        if first * (number // first) == number
        for rest in factorings(number // first, parts - 1)
    ]


@st.composite
def configs(draw: st.DrawFn) -> ParallelConfig:
    """Any legal topology of at most MAX_RANKS ranks, replicas not counted."""
    pp = draw(st.integers(1, min(8, MAX_RANKS)))
    tp = draw(st.integers(1, MAX_RANKS // pp))
    attention = draw(st.sampled_from(factorings(tp, 4)))
    moe_dp, ep, _ = draw(st.sampled_from(factorings(tp, 3)))
    sliced = draw(st.booleans())
    dp, cp, _, dcp = attention
    return ParallelConfig(
        tp_size=tp,
        pp_size=pp,
        dp_size=dp if sliced else draw(st.integers(1, 4)),
        attn_cp_size=cp,
        dcp_size=dcp,
        ep_size=ep,
        moe_dp_size=moe_dp,
        enable_dp_attention=sliced,
    )


def states(config: ParallelConfig) -> list[ParallelState]:
    """Every rank of one topology, in the order of their numbers over all replicas."""
    replicas = 1 if config.enable_dp_attention else config.dp_size
    return [
        ParallelState.from_config(config, tp_rank=tp_rank, pp_rank=pp_rank, dp_rank=replica)
        for replica in range(replicas)
        for pp_rank in range(config.pp_size)
        for tp_rank in range(config.tp_size)
    ]


def any_state(config: ParallelConfig) -> st.SearchStrategy[ParallelState]:
    """Some rank of one topology."""
    return st.builds(
        ParallelState.from_config,
        st.just(config),
        tp_rank=st.integers(0, config.tp_size - 1),
        pp_rank=st.integers(0, config.pp_size - 1),
        dp_rank=st.integers(0, 0 if config.enable_dp_attention else config.dp_size - 1),
    )
