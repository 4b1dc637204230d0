"""`active`: DCP really ran. Every rank tells its live topology, and a request moves the DCP group's counters."""

from __future__ import annotations

from harness.checks.asks import RequestGroup
from harness.checks.base import (
    BaselineUse,
    CheckContext,
    CheckResult,
    failed,
    passed,
    random_prompt,
    unproven,
)
from harness.engines import GenerateRequest, RankInfo, ServerInfo
from harness.suites import ActiveParams

baseline_use = BaselineUse.NEVER

# Collectives that only the merge of partial attention outputs makes at decode, by comm backend.
MERGE_KINDS = {"ag_rs": ("all_gather", "reduce_scatter"), "a2a": ("all_gather", "all_to_all")}
PROBE = GenerateRequest(input_ids=random_prompt(9, seed=1), max_new_tokens=4)


def baseline_asks(params: ActiveParams) -> list[RequestGroup]:
    return []


def run(params: ActiveParams, context: CheckContext) -> CheckResult:
    before = context.client.server_info()
    if before.ranks is None:
        return unproven("the engine tells no per-rank topology, so that DCP ran cannot be proven")
    wrong = _topology_faults(before, dcp=params.dcp)
    context.client.generate(PROBE)
    after = context.client.server_info()
    wrong += _collective_faults(before, after, dcp=params.dcp)
    if wrong:
        return failed("; ".join(wrong[:4]), faults=wrong)
    moved = _moved(before.ranks[0], (after.ranks or before.ranks)[0])
    counted = ", ".join(f"{count} {kind}" for kind, count in sorted(moved.items()))
    return passed(
        f"{before.tp_size} ranks live at dcp {params.dcp}; one request made {counted} in each DCP group",
        dcp_size=before.dcp_size,
        dcp_collectives=moved,
        kv_rows_per_rank=before.ranks[0].kv_rows,
        max_total_num_tokens=before.max_total_num_tokens,
    )


def _topology_faults(info: ServerInfo, *, dcp: int) -> list[str]:
    ranks = info.ranks or ()
    faults = []
    if info.dcp_size != dcp:
        faults.append(f"dcp_size is {info.dcp_size}, asked for {dcp}")
    if [rank.tp_rank for rank in ranks] != list(range(info.tp_size)):
        faults.append(f"ranks {[rank.tp_rank for rank in ranks]} answered, expected 0 to {info.tp_size - 1}")
    if len({rank.pid for rank in ranks}) != len(ranks):
        faults.append("two ranks share a process, so nothing was sharded over processes")
    for rank in ranks:
        faults += _rank_faults(rank, dcp=dcp)
    expected = sum(rank.kv_rows for rank in ranks[:dcp])
    if not faults and expected != info.max_total_num_tokens:
        faults.append(
            f"max_total_num_tokens {info.max_total_num_tokens} is not the {expected} rows of a DCP group"
        )
    return faults


def _rank_faults(rank: RankInfo, *, dcp: int) -> list[str]:
    first = next(start for start in range(0, rank.tp_rank + 1, dcp) if rank.tp_rank < start + dcp)
    group = tuple(range(first, first + dcp))
    found = (rank.attn_dcp_size, rank.dcp_group, rank.attn_dcp_rank)
    wanted = (dcp, group, group.index(rank.tp_rank))
    if found == wanted:
        return []
    return [f"tp_rank {rank.tp_rank} lives in (dcp size, group, rank) {found}, expected {wanted}"]


def _moved(before: RankInfo, after: RankInfo) -> dict[str, int]:
    old = before.collectives.get("dcp", {})
    new = after.collectives.get("dcp", {})
    return {kind: count - old.get(kind, 0) for kind, count in new.items() if count > old.get(kind, 0)}


def _collective_faults(before: ServerInfo, after: ServerInfo, *, dcp: int) -> list[str]:
    pairs = list(zip(before.ranks or (), after.ranks or (), strict=True))
    moved = [_moved(old, new) for old, new in pairs]
    if dcp == 1:
        return []
    # A backend that this table does not know must at least gather the query heads.
    merge = MERGE_KINDS.get(before.dcp_comm_backend, ("all_gather",))
    faults = []
    for (_, rank), kinds in zip(pairs, moved, strict=True):
        missing = [kind for kind in merge if not kinds.get(kind)]
        if missing:
            faults.append(
                f"tp_rank {rank.tp_rank} made no {' or '.join(missing)} in its DCP group while it decoded"
            )
    if any(kinds != moved[0] for kinds in moved):
        faults.append(f"ranks made different numbers of DCP collectives: {moved}")
    return faults
