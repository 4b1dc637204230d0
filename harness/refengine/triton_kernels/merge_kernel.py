# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""Merge of partial results by their LSEs: those of a sequence's splits, and those of a DCP group's ranks.

A part with LSE -inf is the identity: it weighs nothing, and what its output holds is not even read. One whose LSE is
NaN or +inf is not: it makes the result NaN.
"""

from __future__ import annotations

import triton
import triton.language as tl

from harness.refengine.triton_kernels.softmax import LOG2_E, finish


@triton.jit
def merge_kernel(
    parts,
    lses,
    out,
    lse,
    num_parts,
    num_heads,
    parts_at,
    lses_at,
    out_at,
    lse_at,
    HEAD_BLOCK: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM_BLOCK: tl.constexpr,
):
    """Grid [B, blocks of heads]: parts [R, B, H, D] with natural LSEs [R, B, H]; `*_at` are strides in elements."""
    batch = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64) * HEAD_BLOCK + tl.arange(0, HEAD_BLOCK)
    dim = tl.arange(0, DIM_BLOCK).to(tl.int64)
    inside = head < num_heads
    real = inside[:, None] & (dim < HEAD_DIM)[None, :]
    acc = tl.zeros([HEAD_BLOCK, DIM_BLOCK], dtype=tl.float32)
    top = tl.full([HEAD_BLOCK], float("-inf"), dtype=tl.float32)
    total = tl.zeros([HEAD_BLOCK], dtype=tl.float32)
    their_out = parts + batch * parts_at[1] + head[:, None] * parts_at[2] + dim[None, :] * parts_at[3]
    their_lse = lses + batch * lses_at[1] + head * lses_at[2]
    for _ in range(num_parts):
        natural = tl.load(their_lse, mask=inside, other=float("-inf"))
        some = natural > float("-inf")
        value = tl.load(their_out, mask=real & some[:, None], other=0.0)
        higher = tl.maximum(top, natural * LOG2_E)
        # Where no part held anything so far, the differences would be -inf minus -inf.
        base = tl.where(higher > float("-inf"), higher, 0.0)
        faded = tl.exp2(top - base)
        share = tl.exp2(natural * LOG2_E - base)
        acc = acc * faded[:, None] + share[:, None] * value
        total = total * faded + share
        top = higher
        their_out += parts_at[0]
        their_lse += lses_at[0]
    result, merged = finish(acc, top, total)
    places = batch * out_at[0] + head[:, None] * out_at[1] + dim[None, :] * out_at[2]
    tl.store(out + places, result, mask=real)
    tl.store(lse + batch * lse_at[0] + head * lse_at[1], merged, mask=inside)
