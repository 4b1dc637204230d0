# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""Extend: the new tokens of packed sequences over each one's prefix and, causally, over each other.

One program takes a block of one sequence's new tokens and one query head. Prefix tokens are picked by `order` out
of the rows that the DCP group has gathered, so no rearranged copy of them is made.
"""

from __future__ import annotations

import triton
import triton.language as tl

from harness.refengine.triton_kernels.softmax import attend_block, finish


@triton.jit
def extend_kernel(
    q,
    new,
    prefix,
    order,
    new_ends,
    prefix_ends,
    kv_of_head,
    out,
    scale,
    q_at,
    new_at,
    prefix_at,
    out_at,
    HEAD_DIM: tl.constexpr,
    DIM_BLOCK: tl.constexpr,
    QUERY_BLOCK: tl.constexpr,
    BLOCK: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """Grid [sequences, H, blocks of queries]; `*_ends` [sequences + 1] begin with 0, `*_at` are strides."""
    sequence = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    first_query = tl.program_id(2).to(tl.int64) * QUERY_BLOCK
    new_begin = tl.load(new_ends + sequence).to(tl.int64)
    num_new = tl.load(new_ends + sequence + 1).to(tl.int64) - new_begin
    if first_query >= num_new:
        # The grid is as long as the longest sequence.
        return
    prefix_begin = tl.load(prefix_ends + sequence).to(tl.int64)
    num_prefix = tl.load(prefix_ends + sequence + 1).to(tl.int64) - prefix_begin
    place = first_query + tl.arange(0, QUERY_BLOCK)
    dim = tl.arange(0, DIM_BLOCK).to(tl.int64)
    within = (dim < HEAD_DIM)[None, :]
    real = (place < num_new)[:, None] & within
    token = (new_begin + place)[:, None]
    query = tl.load(q + token * q_at[0] + head * q_at[1] + dim[None, :] * q_at[2], mask=real, other=0.0)
    query = query.to(new.dtype.element_ty)
    shared = tl.load(kv_of_head + head).to(tl.int64)
    acc = tl.zeros([QUERY_BLOCK, DIM_BLOCK], dtype=tl.float32)
    top = tl.full([QUERY_BLOCK], float("-inf"), dtype=tl.float32)
    total = tl.zeros([QUERY_BLOCK], dtype=tl.float32)
    keys = prefix + shared * prefix_at[2] + dim[None, :] * prefix_at[3]
    for first in range(0, num_prefix, BLOCK):
        nth = first + tl.arange(0, BLOCK)
        held = nth < num_prefix
        gathered = tl.load(order + prefix_begin + nth, mask=held, other=0).to(tl.int64)
        row = (gathered * prefix_at[0])[:, None]
        k = tl.load(keys + row, mask=held[:, None] & within, other=0.0)
        v = tl.load(keys + row + prefix_at[1], mask=held[:, None] & within, other=0.0)
        acc, top, total = attend_block(query, k, v, held[None, :], acc, top, total, scale, UPCAST)
    keys = new + shared * new_at[2] + dim[None, :] * new_at[3]
    for first in range(0, tl.minimum(num_new, first_query + QUERY_BLOCK), BLOCK):
        nth = first + tl.arange(0, BLOCK)
        held = nth < num_new
        row = ((new_begin + nth) * new_at[0])[:, None]
        k = tl.load(keys + row, mask=held[:, None] & within, other=0.0)
        v = tl.load(keys + row + new_at[1], mask=held[:, None] & within, other=0.0)
        seen = held[None, :] & (nth[None, :] <= place[:, None])
        acc, top, total = attend_block(query, k, v, seen, acc, top, total, scale, UPCAST)
    result, _ = finish(acc, top, total)
    tl.store(out + token * out_at[0] + head * out_at[1] + dim[None, :] * out_at[2], result, mask=real)
