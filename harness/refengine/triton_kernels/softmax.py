# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""The step that decode and extend share: a block of keys joins a running softmax (flash attention's recurrence).

Logarithms inside are to base 2, which is what the hardware computes; only natural ones leave the kernels.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def attend_block(q, k, v, seen, acc, top, total, scale, UPCAST: tl.constexpr):
    """Let queries [M, D] look at keys [N, D] and values [N, D] where `seen` [M, N].

    `acc` [M, D] are values summed with weights 2^(score - top), `total` [M] those weights, `top` [M] the highest
    score so far, to base 2. Returns the three anew. Each query must see a key here, or have seen one before.
    """
    if UPCAST:
        # The interpreter multiplies the bit patterns of bf16.
        q = q.to(tl.float32)
        k = k.to(tl.float32)
        v = v.to(tl.float32)
    # ieee: by default, fp32 operands are cut to tf32.
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * (scale * LOG2_E)
    # One that is not finite becomes NaN, -inf too: nothing masks by it, and it must not pass for a key not seen.
    scores = tl.where(seen, scores + (scores - scores), float("-inf"))
    higher = tl.maximum(top, tl.max(scores, 1))
    faded = tl.exp2(top - higher)
    weights = tl.exp2(scores - higher[:, None])
    total = total * faded + tl.sum(weights, 1)
    acc = acc * faded[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
    return acc, higher, total


@triton.jit
def finish(acc, top, total):
    """Output [M, D] and natural LSE [M] of a running softmax: (0, -inf) where nothing was seen, and nowhere else."""
    # Whatever was seen weighs 1 at least, or NaN, which is to stay.
    some = total != 0
    divisor = tl.where(some, total, 1.0)
    lse = tl.where(some, (tl.where(some, top, 0.0) + tl.log2(divisor)) * LN_2, float("-inf"))
    return acc / divisor[:, None], lse
