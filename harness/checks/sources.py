"""`sources`: config seed, per-worker state and live topology of every rank say the same, and none was read early.

The engine's own word on itself: ranks tell their three sources in `/server_info`. What a wrong one would do is
said in plain words, and the same divergence on several ranks is one line; the figures have every rank's values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.checks.asks import RequestGroup
from harness.checks.base import BaselineUse, CheckContext, CheckResult, failed, passed, unproven
from harness.engines import RankInfo
from harness.errors import TopologyError
from harness.suites import SourcesParams
from harness.topology import Divergence, ParallelConfig, ParallelState, Role, verify_sources
from harness.topology.sources import FIELDS

baseline_use = BaselineUse.NEVER

# That many ranks in a row are named each.
_TWO = 2
NEEDED = ("seed", "ps", "live", "early_reads")


def baseline_asks(params: SourcesParams) -> list[RequestGroup]:
    return []


def run(params: SourcesParams, context: CheckContext) -> CheckResult:
    ranks = context.client.server_info().ranks
    if ranks is None:
        return unproven("the engine tells nothing per rank, so that its sources agree cannot be seen")
    if missing := [(rank.tp_rank, line) for rank in ranks for line in _missing(rank)]:
        told = [_Told((tp_rank,), line) for tp_rank, line in missing]
        return unproven(_shortened(told, shown=2), missing=[line for _, line in missing])
    findings = [(rank.tp_rank, found) for rank in ranks for found in _findings(rank, rank.sources or {})]
    if findings:
        return failed(_shortened(_by_kind(findings), shown=4), divergences=_by_line(findings))
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


@dataclass(frozen=True, slots=True)
class _Told:
    """One line of the message, and the ranks that it is about."""

    tp_ranks: tuple[int, ...]
    line: str


Finding = tuple[int, Divergence | str]


def _by_line(findings: list[Finding]) -> list[str]:
    """Every line that some rank earns, with its own values, behind the ranks that earn it."""
    earned: dict[str, list[int]] = {}
    for tp_rank, found in findings:
        earned.setdefault(str(found), []).append(tp_rank)
    return [f"{_named(tp_ranks)}: {line}" for line, tp_ranks in earned.items()]


def _by_kind(findings: list[Finding]) -> list[_Told]:
    """As `_by_line`, but what differs in its values alone, as a rank does on each rank, is one line."""
    earned: dict[object, list[Finding]] = {}
    for tp_rank, found in findings:
        kind = found if isinstance(found, str) else (found.axis, tuple(found.values), found.consequence)
        earned.setdefault(kind, []).append((tp_rank, found))
    return [_told_once(alike) for alike in earned.values()]


def _told_once(alike: list[Finding]) -> _Told:
    """Findings of one kind: where ranks say different values, those of the first stand for all."""
    tp_ranks = tuple(tp_rank for tp_rank, _ in alike)
    first, found = alike[0]
    if len({str(other) for _, other in alike}) > 1 and isinstance(found, Divergence):
        return _Told(
            tp_ranks, f"{_named(tp_ranks)}: {found.axis}: {found.said} on rank {first}: {found.consequence}"
        )
    return _Told(tp_ranks, f"{_named(tp_ranks)}: {found}")


def _shortened(told: list[_Told], *, shown: int) -> str:
    """The first lines, and of the rest how many and on which ranks."""
    rest = told[shown:]
    lines = [each.line for each in told[:shown]]
    if rest:
        tp_ranks = sorted({tp_rank for each in rest for tp_rank in each.tp_ranks})
        lines.append(f"… and {len(rest)} more on {_named(tp_ranks)}")
    return "; ".join(lines)


def _named(tp_ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 1 to 3, 5, 6`."""
    runs: list[list[int]] = []
    for rank in tp_ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    words = ", ".join(
        f"{run[0]} to {run[-1]}" if len(run) > _TWO else ", ".join(map(str, run)) for run in runs
    )
    return f"rank {words}" if len(tp_ranks) == 1 else f"ranks {words}"


def _findings(rank: RankInfo, sources: Mapping[str, Any]) -> Iterator[Divergence | str]:
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
    yield from found
    yield from (f"early read: {read}" for read in sources["early_reads"])
