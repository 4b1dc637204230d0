"""Attention under decode context parallelism: partial results with their weight, and the merge of a group.

Decode: every rank of a DCP group attends with the query heads of the *whole* group over the tokens it holds,
giving an output and the log-sum-exp (LSE) of its scores. The group's output is the average of the partial
ones, weighted by `exp(lse_r - logsumexp_r lse)`: the share of the softmax's denominator that each rank has
seen (flash-decoding's split-KV identity). A rank without tokens contributes `(0, -inf)`, the merge's
identity.

Extend: each rank attends with its own query heads over the gathered prefix and the new tokens; no merge.
All arithmetic here is fp32, whatever the pool holds. `TorchAttention` is what layers call of it; with
`--attention-backend triton` they call `triton_kernels.backend` in its place.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from harness.refengine.comm import Communicator
from harness.refengine.seams import seam
from harness.refengine.step_plan import DecodeReads, ExtendReads

# Names of the seams, for those who patch them.
GATHER_HEADS = "gather-heads"
LOCAL_ATTENTION = "local-attention"
LSE_WEIGHTS = "lse-weights"
MERGE_AG_RS = "merge-ag-rs"
MERGE_A2A = "merge-a2a"

# What an LSE is a logarithm to. Kernels differ (some return log2), so the base belongs to the contract.
LSE_BASE = math.e

# A finite stand-in for the highest of no scores: -inf minus it is -inf, where -inf minus -inf would be NaN.
_NO_SCORE = float(torch.finfo(torch.float32).min)

# A stand-in for the denominator of no tokens, whose numerator is 0; a real one is at least 1.
_NO_TOKENS = 1e-30


@seam(GATHER_HEADS)
def gather_heads(q: Tensor, group: Communicator) -> Tensor:
    """Query heads of the whole DCP group in rank order: q [B, own heads, D] -> [B, own heads * size, D]."""
    return group.all_gather(q, dim=1)


@seam(LOCAL_ATTENTION)
def local_attention(
    q: Tensor, k: Tensor, v: Tensor, padding: Tensor, *, scale: float
) -> tuple[Tensor, Tensor]:
    """Attend over the tokens this rank holds; each KV head serves H / K consecutive query heads.

    q is [B, H, D]; k and v are [B, K, L, D], finite; `padding` [B, L] is True where a row is no token of the
    sequence. Returns out [B, H, D] and lse [B, H] to base `LSE_BASE`, (0, -inf) where there are none.
    """
    grouped = q.unflatten(1, (k.shape[1], -1))
    scores = torch.matmul(grouped, k.transpose(-1, -2)) * scale
    scores.masked_fill_(padding[:, None, None, :], -torch.inf)
    highest = scores.amax(dim=-1, keepdim=True).clamp_min(_NO_SCORE)
    shares = torch.exp(scores - highest)
    denominator = shares.sum(dim=-1, keepdim=True)
    out = torch.matmul(shares, v) / denominator.clamp_min(_NO_TOKENS)
    lse = highest + torch.log(denominator)
    return out.flatten(1, 2), lse.flatten(1)


def extend_attention(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor, *, scale: float) -> Tensor:
    """Causal attention of several sequences packed together.

    q is [T, H, D], k and v are [L, H, D]; `hidden` [T, L] is True where a query must not see a key (another
    sequence, or the future). Returns [T, H, D]. Every query sees at least itself.
    """
    scores = torch.matmul(q.transpose(0, 1), k.permute(1, 2, 0)) * scale
    scores.masked_fill_(hidden, -torch.inf)
    return torch.matmul(scores.softmax(dim=-1), v.transpose(0, 1)).transpose(0, 1)


@seam(LSE_WEIGHTS)
def lse_weights(lse: Tensor) -> Tensor:
    """Share of each rank in the softmax: lse [ranks, B, H] to base e -> weights that add up to 1 over ranks.

    Where no rank holds a token, all weights are 0 and the merged output is 0.
    """
    shares = torch.exp(lse - lse.amax(dim=0).clamp_min(_NO_SCORE))
    return shares / shares.sum(dim=0).clamp_min(_NO_TOKENS)


@seam(MERGE_AG_RS)
def merge_ag_rs(out: Tensor, lse: Tensor, group: Communicator) -> Tensor:
    """Merge with two collectives: all-gather the LSE, reduce-scatter the weighted outputs.

    out [B, H_group, D] and lse [B, H_group] of this rank -> [B, H_group / size, D], the rank's own heads.
    """
    everyones = group.all_gather(lse[None])
    weighted = out * lse_weights(everyones)[group.rank][..., None]
    return group.reduce_scatter(weighted, dim=1)


def merge_parts(parts: Tensor, lses: Tensor) -> Tensor:
    """Average partial results of all ranks by their weights: [ranks, B, h, D], [ranks, B, h] -> [B, h, D]."""
    return (parts * lse_weights(lses)[..., None]).sum(dim=0)


@seam(MERGE_A2A)
def merge_a2a(
    out: Tensor,
    lse: Tensor,
    group: Communicator,
    *,
    merge: Callable[[Tensor, Tensor], Tensor] = merge_parts,
) -> Tensor:
    """Merge with one collective: each rank sends every other the output and LSE of that one's heads, packed.

    Same shapes as `merge_ag_rs`; `merge` is `merge_parts`, or another backend's way to do it.
    """
    packed = torch.cat([out, lse[..., None]], dim=-1)
    by_rank = packed.unflatten(1, (group.size, -1)).transpose(0, 1).contiguous()
    received = group.all_to_all(by_rank)
    return merge(received[..., :-1], received[..., -1])


class TorchAttention:
    """`own_kv` [own heads] says which of the KV heads held here each query head uses when extending."""

    def __init__(self, *, scale: float, own_kv: Tensor) -> None:
        self._scale = scale
        self._own_kv = own_kv

    def decode(self, q: Tensor, kv: Tensor, reads: DecodeReads) -> tuple[Tensor, Tensor]:
        """q [B, H, D] over one layer's pool [rows, 2, K, D] -> out [B, H, D] and lse [B, H]."""
        rows = kv.index_select(0, reads.rows.flatten()).float()
        k, v = rows.unflatten(0, reads.rows.shape).permute(2, 0, 3, 1, 4)
        return local_attention(q, k, v, reads.padding, scale=self._scale)

    def extend(self, q: Tensor, new: Tensor, gathered: Tensor | None, reads: ExtendReads) -> Tensor:
        """q [T, H, D], new KV [T, 2, K, D], the gathered prefix rows [n, 2, K, D] if any -> [T, H, D]."""
        kv = new if gathered is None else torch.cat([gathered.index_select(0, reads.order), new])
        k, v = kv.float().index_select(2, self._own_kv).unbind(1)
        return extend_attention(q, k, v, reads.hidden, scale=self._scale)
