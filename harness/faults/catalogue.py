"""Every fault by id: what it breaks, where it was seen, and how it is planted.

The command line lists and names faults from here, so the modules that plant them (and torch with them) are
imported only by `Fault.install`.
"""

from __future__ import annotations

import difflib

from harness.errors import UsageError
from harness.faults.fault import Fault, Reach

FAULTS: dict[str, Fault] = {
    fault.id: fault
    for fault in (
        # The weights of the merge.
        Fault(
            id="lse-base",
            title="natural-log LSEs merged as base-2: exp2 where e is meant",
            source="sgl-project/sglang#33065",
            seams=("lse-weights", "triton-merge-ranks"),
            module="lse_base",
        ),
        Fault(
            id="lse-log2",
            title="base-2 LSEs merged as natural ones",
            source="vllm-project/vllm#47079",
            seams=("local-attention", "triton-local-attention"),
            module="lse_log2",
        ),
        Fault(
            id="lse-bf16",
            title="LSEs rounded to bf16 before the merge",
            source="ROCm/aiter#3542",
            seams=("local-attention", "triton-local-attention"),
            module="lse_bf16",
        ),
        Fault(
            id="lse-unscaled",
            title="LSE of scores without the softmax scale",
            source="HKUSTDial/flash-sparse-attention#106",
            seams=("local-attention", "triton-local-attention"),
            module="lse_unscaled",
        ),
        Fault(
            id="lse-stride",
            title="LSE written [heads, batch], read as [batch, heads]",
            source="vllm-project/vllm#22003",
            seams=("local-attention", "triton-local-attention"),
            module="lse_stride",
        ),
        Fault(
            id="empty-shard",
            title="LSE 0 where a rank holds no token, instead of -inf",
            source="vllm-project/vllm-ascend#14126",
            seams=("local-attention", "triton-local-attention"),
            module="empty_shard",
        ),
        Fault(
            id="out-bf16",
            title="partial outputs rounded to bf16 before the merge",
            source="flashinfer-ai/flashinfer#5166",
            seams=("local-attention", "triton-local-attention"),
            module="out_bf16",
        ),
        Fault(
            id="merge-max",
            title="only the shard with the largest LSE counts",
            source="sgl-project/sglang#2465",
            seams=("lse-weights", "triton-merge-ranks"),
            module="merge_max",
        ),
        Fault(
            id="merge-mean",
            title="partial outputs averaged without LSE weights",
            source="flashinfer-ai/flashinfer#50",
            seams=("lse-weights", "triton-merge-ranks"),
            module="merge_mean",
        ),
        Fault(
            id="merge-skipped",
            title="no merge: each rank keeps what its own shard gave",
            source="vllm-project/vllm#50005",
            seams=("merge-ag-rs", "merge-a2a"),
            module="merge_skipped",
        ),
        # Which tokens a rank reads at decode.
        Fault(
            id="len-ceil",
            title="local length ceil(L / dcp) on every rank: one row past the shard is read",
            source="vllm-project/vllm#31166",
            seams=("local-kv-len",),
            module="len_ceil",
        ),
        Fault(
            id="len-stale",
            title="local lengths of the step before: the newest token is not seen",
            source="vllm-project/vllm#36070",
            seams=("local-kv-len",),
            module="len_stale",
        ),
        Fault(
            id="partial-page",
            title="the last, partly filled page of each shard is not read",
            source="sgl-project/sglang#32837",
            seams=("local-kv-len",),
            module="partial_page",
        ),
        Fault(
            id="shard-lost",
            title="one rank takes its shard for empty",
            source="LMCache/LMCache#1379",
            seams=("local-kv-len",),
            module="shard_lost",
        ),
        Fault(
            id="interleave-reader",
            title="readers take page-sized stripes, writers those of `interleave`",
            source="vllm-project/vllm#54541",
            seams=("shard-position",),
            module="interleave_reader",
        ),
        Fault(
            id="prefix-order",
            title="gathered prefix used rank by rank, with its padding",
            source="vllm-project/vllm#46114",
            seams=("prefix-order",),
            module="prefix_order",
        ),
        # Where tokens are written.
        Fault(
            id="owner-div",
            title="owner p // dcp where (p // interleave) % dcp is meant",
            source="vllm-project/vllm#51031",
            seams=("token-owner",),
            module="owner_div",
        ),
        Fault(
            id="owner-rotated",
            title="ownership shifted by one rank, for writers and readers alike",
            source="NVIDIA/TensorRT-LLM#11252",
            seams=("token-owner", "local-kv-len", "shard-position"),
            module="owner_rotated",
        ),
        Fault(
            id="owner-page",
            title="whole pages dealt out in turns, for writers and readers alike",
            source="sgl-project/sglang#32997",
            seams=("pool-layout",),
            module="owner_page",
        ),
        Fault(
            id="write-all",
            title="every rank writes every token",
            source="sgl-project/sglang#36886",
            seams=("write-rows",),
            module="write_all",
        ),
        Fault(
            id="pad-slot",
            title="tokens of other ranks written over the first row of page 1",
            source="ROCm/ATOM#2008",
            seams=("write-rows",),
            module="pad_slot",
        ),
        Fault(
            id="free-partial",
            title="a freed page forgets page_size / dcp of its rows",
            source="sgl-project/sglang#33348",
            seams=("page-rows",),
            module="free_partial",
        ),
        # Where topology is read from.
        Fault(
            id="ps-early",
            title="a worker's state takes its DCP size and rank from the live source before groups are up",
            source="sgl-project/sglang#33925",
            seams=("worker-state",),
            module="ps_early",
        ),
        # Heads and positions.
        Fault(
            id="head-order",
            title="query heads gathered in the reverse of rank order",
            source="NVIDIA/TensorRT-LLM#10350",
            seams=("gather-heads",),
            module="head_order",
        ),
        Fault(
            id="kv-head-mod",
            title="KV head h % K for query head h, instead of h // group",
            source="sgl-project/sglang#30997",
            seams=("local-attention", "triton-local-attention"),
            module="kv_head_mod",
        ),
        Fault(
            id="kv-head-tp",
            title="KV heads cut over TP ranks, not over DCP groups",
            source="sgl-project/sglang#32858",
            seams=("stored-kv-heads",),
            module="kv_head_tp",
        ),
        Fault(
            id="rope-local",
            title="decode turns by the place in the shard, not by the position",
            source="sgl-project/sglang#32098",
            seams=("rotary-positions",),
            module="rope_local",
        ),
        # Kernels.
        Fault(
            id="empty-split",
            title="splits without tokens merged as if they had written their part",
            source="vllm-project/vllm#47188",
            seams=("triton-decode-splits",),
            module="empty_split",
            reach=Reach.TRITON,
        ),
        Fault(
            id="stride",
            title="kernels take strided queries and LSEs for contiguous ones",
            source="ROCm/aiter#2117",
            seams=("triton-decode-splits", "triton-merge-parts", "triton-extend"),
            module="stride",
            reach=Reach.TRITON,
        ),
        # Handing KV over.
        Fault(
            id="pd-swap",
            title="DCP ranks 1 and 2 of the decode side get each other's rows",
            source="NVIDIA/TensorRT-LLM#11252",
            seams=("transfer-positions",),
            module="pd_swap",
            reach=Reach.PAIR,
        ),
        Fault(
            id="pd-contiguous",
            title="each decode rank gets a contiguous stretch of a chunk, not its turns",
            source="sgl-project/sglang#32997",
            seams=("transfer-positions",),
            module="pd_contiguous",
            reach=Reach.PAIR,
        ),
        Fault(
            id="pd-lost-page",
            title="the last page of a prompt is not handed over",
            source="sgl-project/sglang#32837",
            seams=("source-rows",),
            module="pd_lost_page",
            reach=Reach.PAIR,
        ),
        Fault(
            id="pd-shift",
            title="rows are read one further than the token lies",
            source="NVIDIA/TensorRT-LLM#15824",
            seams=("pack-rows",),
            module="pd_shift",
            reach=Reach.PAIR,
        ),
    )
}


def get_fault(fault_id: str) -> Fault:
    """The fault named `fault_id`; raises UsageError that lists near names, or all where none is near."""
    if fault_id in FAULTS:
        return FAULTS[fault_id]
    near = difflib.get_close_matches(fault_id, FAULTS, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(FAULTS)}"
    raise UsageError(f"unknown fault {fault_id!r}; {hint}")
