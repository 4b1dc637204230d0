"""The two places that build a worker's state, held against what harness derives of the same arguments."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.reads.consumers.construction import COMPARED, differences
from harness.topology import ParallelConfig, ParallelState


def states(config: ParallelConfig) -> list[ParallelState]:
    return [ParallelState.from_config(config, tp_rank=rank) for rank in range(config.tp_size)]


@pytest.mark.parametrize("config", COMPARED)
def test_places_that_build_what_is_derived_differ_in_nothing(config: ParallelConfig) -> None:
    for state in states(config):
        built = {"scheduler": replace(state, gpu_id=0), "one_batch": state}
        assert differences(built, state) == []


@pytest.mark.parametrize("config", COMPARED)
def test_a_rank_in_strides_at_both_places_is_told_with_both_values(config: ParallelConfig) -> None:
    wrong = 0
    for derived in states(config):
        strided = derived.tp_rank // (config.tp_size // config.dcp_size)
        built = replace(derived, attn_dcp_rank=strided)
        right = derived.tp_rank % config.dcp_size
        told = differences({"scheduler": built, "one_batch": built}, derived)
        expected = [
            f"attn_dcp_rank: expected {right}, {site} {strided}" for site in ("scheduler", "one_batch")
        ]
        assert told == (expected if strided != right else [])
        wrong += strided != right
    assert wrong > 0
