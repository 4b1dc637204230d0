"""Where a token's KV lives, as the engine asks for it: thin seams over `harness.topology.KVLayout`.

The writer and the readers of the pool go through the same functions, on tensors of any shape. They are seams,
since an ownership bug in a real engine is a bug in exactly one of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from harness.refengine.seams import seam
from harness.topology import KVLayout

# Names of the seams, for those who patch them.
TOKEN_OWNER = "token-owner"
PHYSICAL_ROW = "physical-row"
LOCAL_KV_LEN = "local-kv-len"
KV_HEAD_MAP = "kv-head-map"


@seam(TOKEN_OWNER)
def token_owner(layout: KVLayout, positions: Tensor) -> Tensor:
    """DCP rank that holds each position: `(p // interleave) % dcp`."""
    owners: Tensor = layout.owner(positions)
    return owners


@seam(PHYSICAL_ROW)
def physical_row(layout: KVLayout, slots: Tensor) -> Tensor:
    """Row of its owner's pool that each logical slot is kept in, dummy page included."""
    rows: Tensor = layout.row(slots)
    return rows


@seam(LOCAL_KV_LEN)
def local_kv_len(layout: KVLayout, lengths: Tensor, rank: int) -> Tensor:
    """How many of the first `lengths` tokens of a sequence DCP rank `rank` holds.

    Whole windows of dcp·interleave tokens give every rank `interleave`; the ragged last window fills rank by
    rank.
    """
    window = layout.dcp_size * layout.interleave
    ragged = (lengths % window - rank * layout.interleave).clamp(0, layout.interleave)
    return lengths // window * layout.interleave + ragged


@seam(KV_HEAD_MAP)
def kv_head_map(q_heads: Sequence[int], *, num_q_heads: int, num_kv_heads: int) -> list[int]:
    """Global KV head that each global query head attends to: consecutive query heads share one."""
    return [head // (num_q_heads // num_kv_heads) for head in q_heads]
