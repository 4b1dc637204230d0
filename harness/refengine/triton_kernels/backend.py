"""Triton's side of an engine's attention: what the layers call, on what a paged step plan holds."""

from __future__ import annotations

from torch import Tensor

from harness.refengine.seams import seam
from harness.refengine.step_plan import PackedReads, PagedReads
from harness.refengine.triton_kernels.calls import extend_attention, local_attention, merge_parts
from harness.refengine.triton_kernels.loading import kernels

# Name of the seam, for those who patch it.
MERGE_RANKS = "triton-merge-ranks"


class TritonAttention:
    """`own_kv` [own heads] says which of the KV heads held here each query head uses when extending."""

    def __init__(self, *, scale: float, page_size: int, own_kv: Tensor) -> None:
        self._scale = scale
        self._page_size = page_size
        self._own_kv = own_kv

    def decode(self, q: Tensor, kv: Tensor, reads: PagedReads) -> tuple[Tensor, Tensor]:
        """q [B, H, D] over one layer's pool [rows, 2, K, D] -> out [B, H, D] and natural lse [B, H]."""
        if kernels().interpreted:
            # The interpreter copies the memory of each argument onto itself afterwards, which would undo what the
            # thread that receives KV writes into the pool meanwhile.
            kv = kv.clone()
        return local_attention(q, kv, reads.table, reads.lens, scale=self._scale, page_size=self._page_size)

    def extend(self, q: Tensor, new: Tensor, gathered: Tensor | None, reads: PackedReads) -> Tensor:
        """q [T, H, D], new KV [T, 2, K, D], the gathered prefix rows [n, 2, K, D] if any -> [T, H, D]."""
        return extend_attention(
            *(q, new, new[:0] if gathered is None else gathered, reads.order),
            *(reads.new_ends, reads.prefix_ends, self._own_kv),
            longest=reads.longest,
            scale=self._scale,
        )


@seam(MERGE_RANKS)
def merge_ranks(parts: Tensor, lses: Tensor) -> Tensor:
    """Merge what the ranks of a DCP group have seen: parts [ranks, B, h, D], lses [ranks, B, h] -> [B, h, D]."""
    out, _ = merge_parts(parts, lses)
    return out
