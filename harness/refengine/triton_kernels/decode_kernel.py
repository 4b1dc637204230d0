# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""Decode: one query token of each sequence over the tokens that this rank holds, cut into splits.

One program takes one sequence, one KV head with all query heads that share it, and one split; it finds rows
through the page table. Every offset is int64: page number times stride passes 2^31 in pools of ordinary size.
"""

from __future__ import annotations

import triton
import triton.language as tl

from harness.refengine.triton_kernels.softmax import attend_block, finish


@triton.jit
def decode_kernel(
    q,
    kv,
    table,
    lens,
    out,
    lse,
    scale,
    q_at,
    kv_at,
    table_at,
    lens_at,
    out_at,
    lse_at,
    GROUP: tl.constexpr,
    GROUP_BLOCK: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM_BLOCK: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """Grid [B, K, splits]; `*_at` are strides in elements; `out` is [splits, B, H, D], `lse` [splits, B, H]."""
    batch = tl.program_id(0).to(tl.int64)
    shared = tl.program_id(1).to(tl.int64)
    split = tl.program_id(2).to(tl.int64)
    member = tl.arange(0, GROUP_BLOCK)
    head = shared * GROUP + member
    dim = tl.arange(0, DIM_BLOCK).to(tl.int64)
    within = (dim < HEAD_DIM)[None, :]
    real = (member < GROUP)[:, None] & within
    places = batch * q_at[0] + head[:, None] * q_at[1] + dim[None, :] * q_at[2]
    query = tl.load(q + places, mask=real, other=0.0).to(kv.dtype.element_ty)
    length = tl.load(lens + batch * lens_at[0]).to(tl.int64)
    # Whole blocks, dealt evenly: the last splits may be empty. (tl.cdiv costs the interpreter a millisecond.)
    per_split = ((length + BLOCK - 1) // BLOCK + tl.num_programs(2) - 1) // tl.num_programs(2) * BLOCK
    begin = split * per_split
    end = tl.minimum(begin + per_split, length)
    acc = tl.zeros([GROUP_BLOCK, DIM_BLOCK], dtype=tl.float32)
    top = tl.full([GROUP_BLOCK], float("-inf"), dtype=tl.float32)
    total = tl.zeros([GROUP_BLOCK], dtype=tl.float32)
    keys = kv + shared * kv_at[2] + dim[None, :] * kv_at[3]
    pages = table + batch * table_at[0]
    for first in range(begin, end, BLOCK):
        token = first + tl.arange(0, BLOCK)
        held = token < end
        page = tl.load(pages + token // PAGE_SIZE * table_at[1], mask=held, other=0).to(tl.int64)
        row = ((page * PAGE_SIZE + token % PAGE_SIZE) * kv_at[0])[:, None]
        k = tl.load(keys + row, mask=held[:, None] & within, other=0.0)
        v = tl.load(keys + row + kv_at[1], mask=held[:, None] & within, other=0.0)
        acc, top, total = attend_block(query, k, v, held[None, :], acc, top, total, scale, UPCAST)
    result, natural = finish(acc, top, total)
    places = split * out_at[0] + batch * out_at[1] + head[:, None] * out_at[2] + dim[None, :] * out_at[3]
    tl.store(out + places, result, mask=real)
    places = split * lse_at[0] + batch * lse_at[1] + head * lse_at[2]
    tl.store(lse + places, natural, mask=member < GROUP)
