"""`sources`: config seed, per-worker state and live topology of every rank say the same, and none was read early.

The engine's own word on itself: ranks tell their three sources in `/server_info`. What a wrong one would do is
said in plain words, and the same divergence on several ranks is one line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from harness.checks.asks import RequestGroup
from harness.checks.base import BaselineUse, CheckContext, CheckResult, failed, passed, unproven
from harness.engines import RankInfo
from harness.errors import TopologyError
from harness.suites import SourcesParams
from harness.topology import ParallelConfig, ParallelState, Role, verify_sources
from harness.topology.sources import FIELDS

baseline_use = BaselineUse.NEVER

NEEDED = ("seed", "ps", "live", "early_reads")


def baseline_asks(params: SourcesParams) -> list[RequestGroup]:
    return []


def run(params: SourcesParams, context: CheckContext) -> CheckResult:
    ranks = context.client.server_info().ranks
    if ranks is None:
        return unproven("the engine tells nothing per rank, so that its sources agree cannot be seen")
    if missing := [line for rank in ranks for line in _missing(rank)]:
        return unproven("; ".join(missing[:2]), missing=missing)
    lines = list(_grouped(ranks))
    if lines:
        return failed("; ".join(lines[:4]), divergences=lines)
    return passed(
        f"{len(ranks)} ranks: seed, ps and live agree on all {len(FIELDS)} fields; no early read",
        ranks=len(ranks),
        fields=len(FIELDS),
    )


def _missing(rank: RankInfo) -> Iterator[str]:
    """What a rank does not tell of its sources, as one line."""
    if rank.sources is None:
        yield f"rank {rank.tp_rank} tells nothing of its sources ({', '.join(NEEDED)})"
    elif absent := [name for name in NEEDED if name not in rank.sources]:
        yield f"rank {rank.tp_rank} does not tell its {', '.join(absent)}"


def _grouped(ranks: tuple[RankInfo, ...]) -> Iterator[str]:
    """Every line that some rank earns, behind the ranks that earn it."""
    earned: dict[str, list[int]] = {}
    for rank in ranks:
        for line in _lines(rank, rank.sources or {}):
            earned.setdefault(line, []).append(rank.tp_rank)
    for line, tp_ranks in earned.items():
        yield f"{_named(tp_ranks)}: {line}"


def _named(tp_ranks: list[int]) -> str:
    first, last = tp_ranks[0], tp_ranks[-1]
    if first == last:
        return f"rank {first}"
    in_a_row = tp_ranks == list(range(first, last + 1))
    return f"ranks {first} to {last}" if in_a_row else f"ranks {', '.join(map(str, tp_ranks))}"


def _lines(rank: RankInfo, sources: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the sources of one rank; sources that no rank could have are one line."""
    try:
        seed = ParallelConfig.from_json(sources["seed"])
        ps = ParallelState.from_json(sources["ps"])
        live = None if sources["live"] is None else ParallelState.from_json(sources["live"])
        found = verify_sources(seed, ps, live, role=sources.get("role", Role.TARGET))
    except TopologyError as error:
        yield f"tells sources that cannot be: {error}"
        return
    if live is not None and live.tp_rank != rank.tp_rank:
        yield f"answers as rank {rank.tp_rank}, but its live topology says tp_rank {live.tp_rank}"
    yield from map(str, found)
    yield from (f"early read: {read}" for read in sources["early_reads"])
