"""Which rows go from one rank to another, and the block in which they travel.

A prefill rank asks `transfer_positions`, finds them with `source_rows` and reads them with `pack_rows`: seams, since
these are what handovers get wrong. The decode rank works out by itself what it awaits (`expected_positions`, no
seam): the i-th row that a source sends is written where the i-th expected position lives, but tagged with the
position and token that the sender read in its own tags. So rows that went astray are told apart in `/kv_rows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.refengine.kv_pool import KVPool
from harness.refengine.layout_seams import physical_row, token_owner
from harness.refengine.seams import seam
from harness.topology import KVLayout, row_bytes

# Names of the seams, for those who patch them.
TRANSFER_POSITIONS = "transfer-positions"
SOURCE_ROWS = "source-rows"
PACK_ROWS = "pack-rows"

# Of a position and a token id on the wire.
_INT64_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFormat:
    """What both ends know of the blocks of one route: `kv_heads` are those of the route."""

    num_layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype

    @property
    def kv_row_bytes(self) -> int:
        """Bytes of keys and values of one row: the payload that is counted."""
        return row_bytes(
            num_layers=self.num_layers,
            kv_heads_per_rank=self.kv_heads,
            head_dim=self.head_dim,
            dtype_bytes=self.dtype.itemsize,
        )

    @property
    def row_bytes(self) -> int:
        """Bytes that one row takes in a block: position, token id, keys and values."""
        return 2 * _INT64_BYTES + self.kv_row_bytes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block:
    """Rows in order: `positions` and `tokens` int64 [n]; `kv` [layers, n, 2 (K, V), kv_heads, head_dim]; contiguous."""

    positions: Tensor
    tokens: Tensor
    kv: Tensor

    def to_bytes(self) -> bytes:
        """Positions, then token ids, then keys and values, each as it lies in memory."""
        # Bytes before numpy: it has no bfloat16.
        return b"".join(
            part.cpu().view(torch.uint8).numpy().tobytes() for part in (self.positions, self.tokens, self.kv)
        )

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview, form: BlockFormat) -> Block:
        """The inverse of `to_bytes`, on the CPU; it lies in `data` itself where that is writable.

        Raises ValueError where `data` is not one row or more of this form: the ends disagree.
        """
        view = memoryview(data)
        count, rest = divmod(view.nbytes, form.row_bytes)
        if rest or not count:
            raise ValueError(f"a block of {view.nbytes} B is no whole number of rows of {form.row_bytes} B")
        raw = torch.frombuffer(bytearray(view) if view.readonly else view, dtype=torch.uint8)
        ids, kv = raw.split([2 * _INT64_BYTES * count, form.kv_row_bytes * count])
        positions, tokens = ids.view(torch.int64).view(2, count)
        shape = (form.num_layers, count, 2, form.kv_heads, form.head_dim)
        return cls(positions=positions, tokens=tokens, kv=kv.view(form.dtype).view(shape))


@seam(TRANSFER_POSITIONS)
def transfer_positions(
    prefill: KVLayout,
    decode: KVLayout,
    *,
    start: int,
    stop: int,
    source_dcp_rank: int,
    destination_dcp_rank: int,
) -> Tensor:
    """Positions of `start..stop-1` that a source sends to a destination: int64 [n], rising, maybe none."""
    return _shared_positions(
        prefill,
        decode,
        start=start,
        stop=stop,
        source_dcp_rank=source_dcp_rank,
        destination_dcp_rank=destination_dcp_rank,
    )


def expected_positions(
    prefill: KVLayout,
    decode: KVLayout,
    *,
    length: int,
    source_dcp_rank: int,
    destination_dcp_rank: int,
) -> Tensor:
    """Positions of a prompt of `length` tokens that a destination awaits from a source: int64 [n], rising."""
    return _shared_positions(
        prefill,
        decode,
        start=0,
        stop=length,
        source_dcp_rank=source_dcp_rank,
        destination_dcp_rank=destination_dcp_rank,
    )


@seam(SOURCE_ROWS)
def source_rows(layout: KVLayout, pages: Sequence[int], positions: Tensor) -> Tensor:
    """Rows [n] of a source's pool that hold these positions of the sequence with these logical pages."""
    return _rows(layout, pages, positions)


def destination_rows(layout: KVLayout, pages: Sequence[int], positions: Tensor) -> Tensor:
    """Rows [n] of a destination's pool for positions that it owns, of the sequence with these logical pages."""
    return _rows(layout, pages, positions)


@seam(PACK_ROWS)
def pack_rows(pool: KVPool, rows: Tensor, heads: range) -> Block:
    """Copy `rows` [n] of these `heads` of the pool (its own counting) into a block, in this order."""
    rows = rows.to(pool.kv.device)
    return Block(
        positions=pool.tags[:, 1].index_select(0, rows),
        tokens=pool.tags[:, 2].index_select(0, rows),
        kv=pool.kv[:, :, :, heads.start : heads.stop].index_select(1, rows),
    )


def unpack_rows(pool: KVPool, block: Block, *, index: int, rows: Tensor, heads: range) -> None:
    """Write a block into `rows` [n] of these `heads` of the pool, tagged as tokens of request `index`.

    Every source of a row tags it, so that no written row counts as free while others are under way.
    """
    rows = rows.to(pool.kv.device)
    tags = torch.stack([torch.full_like(block.positions, index), block.positions, block.tokens], dim=1)
    pool.kv[:, :, :, heads.start : heads.stop].index_copy_(1, rows, block.kv.to(pool.kv.device))
    pool.write_tags(rows, tags.to(pool.tags.device))


def _shared_positions(
    prefill: KVLayout,
    decode: KVLayout,
    *,
    start: int,
    stop: int,
    source_dcp_rank: int,
    destination_dcp_rank: int,
) -> Tensor:
    positions = torch.arange(start, stop)
    held = token_owner(prefill, positions) == source_dcp_rank
    wanted = token_owner(decode, positions) == destination_dcp_rank
    return positions[held & wanted]


def _rows(layout: KVLayout, pages: Sequence[int], positions: Tensor) -> Tensor:
    wide = layout.widened_page_size
    slots = torch.tensor(pages)[positions // wide] * wide + positions % wide
    return physical_row(layout, slots)
