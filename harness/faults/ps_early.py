"""Fault `ps-early`: the per-worker state asks the live source for its DCP size and rank, before groups are up.

The reads answer "off" there and not with an error, so every worker is built as rank 0 of 1, in silence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from harness.refengine import worker_state
from harness.refengine.config import EngineConfig
from harness.refengine.seams import wrap
from harness.topology import ParallelState, get_parallel

Build = Callable[[EngineConfig, int], ParallelState]


def built_early(build: Build) -> Build:
    """The same state, but for what it takes from a source that cannot know yet."""

    def build_early(config: EngineConfig, rank: int) -> ParallelState:
        live = get_parallel()
        return replace(
            build(config, rank), attn_dcp_rank=live.attn_dcp_rank, attn_dcp_size=live.attn_dcp_size
        )

    return build_early


def install() -> None:
    """Wrap how a rank's state is made, in this process and those forked from it."""
    wrap(worker_state.WORKER_STATE, built_early)
