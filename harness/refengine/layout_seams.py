"""Where a token's KV lives, as the engine asks for it: thin seams over `harness.topology.KVLayout`.

The writer and the readers of the pool go through the same functions, on tensors of any shape; so do those that
share out KV heads, free pages, and turn keys by their positions. They are seams, since an ownership bug in a
real engine is a bug in one of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from harness.refengine.batch import ForwardMode
from harness.refengine.config import EngineConfig
from harness.refengine.seams import seam
from harness.topology import KVLayout, kv_head_range

# Names of the seams, for those who patch them.
POOL_LAYOUT = "pool-layout"
TOKEN_OWNER = "token-owner"
PHYSICAL_ROW = "physical-row"
SHARD_POSITION = "shard-position"
LOCAL_KV_LEN = "local-kv-len"
PAGE_ROWS = "page-rows"
ROTARY_POSITIONS = "rotary-positions"
KV_HEAD_MAP = "kv-head-map"
STORED_KV_HEADS = "stored-kv-heads"


@seam(POOL_LAYOUT)
def pool_layout(config: EngineConfig) -> KVLayout:
    """How this engine deals out tokens: as it was launched to."""
    return config.layout()


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


@seam(SHARD_POSITION)
def shard_position(layout: KVLayout, nth: Tensor, rank: int) -> Tensor:
    """Position of the `nth` token, counting from 0, that DCP rank `rank` holds of any sequence."""
    interleave = layout.interleave
    return nth // interleave * (layout.dcp_size * interleave) + rank * interleave + nth % interleave


@seam(LOCAL_KV_LEN)
def local_kv_len(layout: KVLayout, lengths: Tensor, rank: int) -> Tensor:
    """How many of the first `lengths` tokens of a sequence DCP rank `rank` holds.

    Whole windows of dcp·interleave tokens give every rank `interleave`; the ragged last window fills rank by
    rank.
    """
    window = layout.dcp_size * layout.interleave
    ragged = (lengths % window - rank * layout.interleave).clamp(0, layout.interleave)
    return lengths // window * layout.interleave + ragged


@seam(PAGE_ROWS)
def page_rows(layout: KVLayout, page: int) -> range:
    """Physical rows that a freed logical page gives back, the same on each rank."""
    return layout.rows_of_page(page)


@seam(ROTARY_POSITIONS)
def rotary_positions(layout: KVLayout, positions: Tensor, mode: ForwardMode) -> Tensor:
    """By which positions new queries and keys turn: those in the whole sequence, whoever holds the token."""
    return positions


@seam(STORED_KV_HEADS)
def stored_kv_heads(*, num_kv_heads: int, tp_size: int, dcp_size: int, tp_rank: int) -> range:
    """Global KV heads that a TP rank computes and stores: the same on every rank of a DCP group."""
    return kv_head_range(num_kv_heads=num_kv_heads, tp_size=tp_size, dcp_size=dcp_size, tp_rank=tp_rank)


@seam(KV_HEAD_MAP)
def kv_head_map(q_heads: Sequence[int], *, num_q_heads: int, num_kv_heads: int) -> list[int]:
    """Global KV head that each global query head attends to: consecutive query heads share one."""
    return [head // (num_q_heads // num_kv_heads) for head in q_heads]
