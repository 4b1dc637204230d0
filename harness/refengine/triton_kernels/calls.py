"""The kernels as functions of tensors: shapes checked, grids and tiles chosen from sizes that the host knows.

They are seams, since a bug in a kernel is a bug in one of them. Inputs may have any strides and are fp32, bf16 or
fp16; results are fp32. 16-bit keys are multiplied as they are, and queries and softmax weights rounded to their
type for it (the interpreter rounds queries only); every sum is fp32. No call waits for the device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.refengine.seams import seam
from harness.refengine.triton_kernels.loading import kernels
from harness.refengine.triton_kernels.shapes import (
    require,
    require_count,
    require_lens,
    require_longest,
    require_shape,
)

# Names of the seams, for those who patch them.
LOCAL_ATTENTION = "triton-local-attention"
DECODE_SPLITS = "triton-decode-splits"
MERGE_PARTS = "triton-merge-parts"
EXTEND = "triton-extend"

# What every LSE here is a logarithm to, whatever the kernels use inside.
LSE_BASE = math.e

# The smallest side of a dot product on a tensor core.
_LEAST_SIDE = 16

# Programs for each multiprocessor that a decode is cut into; a second one hides the first one's waits for memory.
_PROGRAMS_PER_SM = 2
# A split reads at least so many tokens, so that its share of the merge costs little beside it.
_LEAST_SPLIT = 256
# The merge of one head reads its splits one after the other.
_MOST_SPLITS = 128
# Nothing runs side by side in the interpreter: enough to have something to merge.
_INTERPRETED_SPLITS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """Sizes of blocks: keys of a decode step, queries and keys of an extend step, heads of a merge."""

    decode: int
    queries: int
    keys: int
    heads: int


# A program of the interpreter costs about 5 ms however much it computes; decode keeps the smallest block there, so
# that short sequences have several.
_INTERPRETED = Tiles(decode=16, queries=64, keys=64, heads=16)
# By the bytes of a head's row, the longest for which blocks of keys and values that are loaded ahead fit into the
# shared memory of every GPU since Ampere.
_COMPILED = {
    256: Tiles(decode=64, queries=64, keys=32, heads=4),
    512: Tiles(decode=32, queries=32, keys=32, heads=4),
    1024: Tiles(decode=16, queries=32, keys=16, heads=4),
}


@seam(LOCAL_ATTENTION)
def local_attention(
    q: Tensor,
    kv: Tensor,
    table: Tensor,
    lens: Tensor,
    *,
    scale: float,
    page_size: int,
    splits: int | None = None,
    out: Tensor | None = None,
    lse: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attend with one query token of each sequence over its `lens` tokens in the pool; H / K heads share a KV head.

    q is [B, H, D], kv one layer's pool [rows, 2, K, D], table [B, P] and lens [B] integers: token n of sequence b
    lies in row `table[b, n // page_size] * page_size + n % page_size`, and lens are at most P * page_size.
    Returns out [B, H, D] and lse [B, H] to base `LSE_BASE`, (0, -inf) where there is no token, in the tensors
    given or in new ones. `splits` is chosen by the shapes when None; the result does not depend on it.
    """
    require_shape("q", q, "B", "H", "D")
    batch, heads, head_dim = q.shape
    require_reads(q, kv, table, lens, page_size=page_size)
    if splits is None:
        tokens = table.shape[1] * page_size
        splits = num_splits(programs=batch * kv.shape[2], tokens=tokens, device=q.device)
    out = q.new_empty(batch, heads, head_dim, dtype=torch.float32) if out is None else out
    lse = q.new_empty(batch, heads, dtype=torch.float32) if lse is None else lse
    require_count("splits", splits)
    require_shape("out", out, batch, heads, head_dim)
    require_shape("lse", lse, batch, heads)
    if splits == 1:
        decode_splits(q, kv, table, lens, out[None], lse[None], scale=scale, page_size=page_size)
        return out, lse
    parts = q.new_empty(splits, batch, heads, head_dim, dtype=torch.float32)
    lses = q.new_empty(splits, batch, heads, dtype=torch.float32)
    decode_splits(q, kv, table, lens, parts, lses, scale=scale, page_size=page_size)
    return merge_parts(parts, lses, out=out, lse=lse)


@seam(DECODE_SPLITS)
def decode_splits(
    q: Tensor,
    kv: Tensor,
    table: Tensor,
    lens: Tensor,
    parts: Tensor,
    lses: Tensor,
    *,
    scale: float,
    page_size: int,
) -> None:
    """What each split of the tokens gives, as `local_attention` of it alone: parts [splits, B, H, D], lses
    [splits, B, H]. A split without a token is (0, -inf), the identity of the merge."""
    require_shape("q", q, "B", "H", "D")
    batch, heads, head_dim = q.shape
    require_reads(q, kv, table, lens, page_size=page_size)
    require_shape("parts", parts, "splits", batch, heads, head_dim)
    require_count("splits", len(parts))
    require_shape("lses", lses, len(parts), batch, heads)
    kv_heads = kv.shape[2]
    group = heads // kv_heads
    tools = kernels()
    tools.launch(
        tools.decode,
        (batch, kv_heads, len(parts)),
        *(q, kv, table, lens, parts, lses, scale),
        *(x.stride() for x in (q, kv, table, lens, parts, lses)),
        on=q,
        GROUP=group,
        GROUP_BLOCK=_side(group),
        HEAD_DIM=head_dim,
        DIM_BLOCK=_side(head_dim),
        PAGE_SIZE=page_size,
        BLOCK=_tiles(kv).decode,
        UPCAST=tools.interpreted,
    )


@seam(MERGE_PARTS)
def merge_parts(
    parts: Tensor, lses: Tensor, *, out: Tensor | None = None, lse: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Merge partial results, of splits or of ranks: parts [R, B, H, D] and lses [R, B, H] to base `LSE_BASE` ->
    out [B, H, D] and lse [B, H], in the tensors given or in new ones. (x, -inf) is the identity for any x."""
    require_shape("parts", parts, "R", "B", "H", "D")
    num_parts, batch, heads, head_dim = parts.shape
    require_count("the number of parts", num_parts)
    require_shape("lses", lses, num_parts, batch, heads)
    out = parts.new_empty(batch, heads, head_dim, dtype=torch.float32) if out is None else out
    lse = parts.new_empty(batch, heads, dtype=torch.float32) if lse is None else lse
    require_shape("out", out, batch, heads, head_dim)
    require_shape("lse", lse, batch, heads)
    tools = kernels()
    head_block = _tiles(parts).heads
    tools.launch(
        tools.merge,
        (batch, -(-heads // head_block)),
        *(parts, lses, out, lse, num_parts, heads),
        *(x.stride() for x in (parts, lses, out, lse)),
        on=parts,
        HEAD_BLOCK=head_block,
        HEAD_DIM=head_dim,
        DIM_BLOCK=_side(head_dim),
    )
    return out, lse


@seam(EXTEND)
def extend_attention(
    q: Tensor,
    new: Tensor,
    prefix: Tensor,
    order: Tensor,
    new_ends: Tensor,
    prefix_ends: Tensor,
    kv_of_head: Tensor,
    *,
    longest: int,
    scale: float,
) -> Tensor:
    """Causal attention of packed sequences over their prefixes and their own new tokens.

    q is [T, H, D], new [T, 2, K, D]. Prefix token i is `prefix[order[i]]`, prefix [rows, 2, K, D]. Sequence s has
    new tokens `new_ends[s]` to `new_ends[s + 1]` and prefix tokens `prefix_ends[s]` to `prefix_ends[s + 1]`, all of
    them before its new ones; `longest` is the most new tokens of one. Query head h uses KV head `kv_of_head[h]`.
    Returns [T, H, D].
    """
    require_shape("q", q, "T", "H", "D")
    num_tokens, heads, head_dim = q.shape
    require_shape("new", new, num_tokens, 2, "K", head_dim)
    require_shape("prefix", prefix, "rows", *new.shape[1:])
    require_shape("order", order, "prefix tokens")
    require_shape("new_ends", new_ends, "sequences + 1")
    require_shape("prefix_ends", prefix_ends, len(new_ends))
    require_shape("kv_of_head", kv_of_head, heads)
    require_longest(longest, new_ends, tokens=num_tokens)
    out = q.new_empty(num_tokens, heads, head_dim, dtype=torch.float32)
    tools, tiles = kernels(), _tiles(new)
    tools.launch(
        tools.extend,
        (len(new_ends) - 1, heads, -(-longest // tiles.queries)),
        *(q, new, prefix, order, new_ends, prefix_ends, kv_of_head, out, scale),
        *(x.stride() for x in (q, new, prefix, out)),
        on=q,
        HEAD_DIM=head_dim,
        DIM_BLOCK=_side(head_dim),
        QUERY_BLOCK=tiles.queries,
        BLOCK=tiles.keys,
        UPCAST=tools.interpreted,
    )
    return out


def require_reads(q: Tensor, kv: Tensor, table: Tensor, lens: Tensor, *, page_size: int) -> None:
    """The pool and the page table of a decode belong to queries [B, H, D]; raises ValueError."""
    batch, heads, head_dim = q.shape
    require_shape("kv", kv, "rows", 2, "K", head_dim)
    kv_heads = kv.shape[2]
    require_count("K, the KV heads of kv,", kv_heads)
    require(heads % kv_heads == 0, "q", list(q.shape), f"a multiple of {kv_heads} heads")
    require_shape("table", table, batch, "pages")
    require_shape("lens", lens, batch)
    require_count("page_size", page_size)
    require_lens(lens, most=table.shape[1] * page_size)


def num_splits(*, programs: int, tokens: int, device: torch.device) -> int:
    """Into how many splits to cut `tokens` where one split of all sequences and KV heads is `programs` programs:
    enough to fill the device. From sizes alone, so the host need not ask the device for lengths."""
    if device.type != "cuda":
        return _INTERPRETED_SPLITS if tokens > _INTERPRETED.decode else 1
    processors: int = torch.cuda.get_device_properties(device).multi_processor_count
    wanted = -(-processors * _PROGRAMS_PER_SM // programs)
    return max(1, min(wanted, tokens // _LEAST_SPLIT, _MOST_SPLITS))


def _tiles(x: Tensor) -> Tiles:
    if kernels().interpreted:
        return _INTERPRETED
    nbytes = x.shape[-1] * x.itemsize
    return next((tiles for longest, tiles in _COMPILED.items() if nbytes <= longest), _COMPILED[1024])


def _side(size: int) -> int:
    """The power of two that a side of `size` elements is padded to."""
    return max(_LEAST_SIDE, 1 << (size - 1).bit_length())
