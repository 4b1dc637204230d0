"""Pools, queries and packed sequences to run kernels on, and what attention over them is: token by token in fp64.

Every row that holds no token of a case is NaN, and so is the memory between strided elements: to read one shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

SCALE = 0.3
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# Results of one softmax in fp32, of scores far below 100. Larger scores lose as many digits as they are longer.
CLOSE = 2e-5
# Compiled kernels round the softmax weights to the type of 16-bit values; an output is off by that, relative to them.
ROUNDED = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes of a decode: `lens` tokens of each sequence, K KV heads of `group` query heads each."""

    lens: tuple[int, ...]
    kv_heads: int = 2
    group: int = 2
    head_dim: int = 16
    page_size: int = 4
    dtype: str = "fp32"
    # Deviation of the queries: scores of 1 are flat, of 40 all weight goes to one token.
    peak: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A decode as the kernel takes it. `k` and `v` hold the same tokens sequence by sequence, [K, length, D] each."""

    q: Tensor
    kv: Tensor
    table: Tensor
    lens: Tensor
    page_size: int
    k: list[Tensor]
    v: list[Tensor]

    def expected(self, held: Sequence[Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Output and LSE; of each sequence only those tokens that are `held`, all without it."""
        batch, heads, size = self.q.shape
        out = torch.zeros(batch, heads, size, dtype=torch.float64)
        lse = torch.full((batch, heads), -math.inf, dtype=torch.float64)
        for b in range(batch):
            for head in range(heads):
                shared = head // (heads // self.kv.shape[2])
                which = slice(None) if held is None else held[b]
                k, v = self.k[b][shared][which], self.v[b][shared][which]
                out[b, head], lse[b, head] = attention(self.q[b, head], k, v)
        return out, lse

    @property
    def slack(self) -> float:
        """How far a right result may be from `expected`."""
        highest = max((float(k.abs().max()) for k in self.k if k.numel()), default=0.0) * float(
            self.q.abs().max()
        )
        exact = CLOSE * max(1.0, highest * self.q.shape[2] * SCALE / 100)
        return exact if self.q.device.type == "cpu" else exact + 4 * ROUNDED.get(self.kv.dtype, 0.0)


def attention(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, float]:
    """One query [D] over its keys and values [L, D], written out: output fp64 [D] and natural LSE."""
    query = q.cpu().double()
    scores = [float(key.double() @ query) * SCALE for key in k.cpu()]
    if not scores:
        return torch.zeros(len(q), dtype=torch.float64), -math.inf
    highest = max(scores)
    powers = [math.exp(score - highest) for score in scores]
    total = math.fsum(powers)
    out = sum(p / total * value.double() for p, value in zip(powers, v.cpu(), strict=True))
    assert isinstance(out, Tensor)
    return out, highest + math.log(total)


def make_case(shape: Shape, device: str) -> Case:
    """Random tensors of a shape, tokens scattered over shuffled pages; queries are exact in the pool's type."""
    made = torch.Generator().manual_seed(shape.seed)
    dtype = DTYPES[shape.dtype]
    batch, heads = len(shape.lens), shape.kv_heads * shape.group
    q = (torch.randn(batch, heads, shape.head_dim, generator=made) * shape.peak).to(dtype).float()
    pages = [-(-length // shape.page_size) for length in shape.lens]
    free = (torch.randperm(sum(pages) + 2, generator=made) + 1).tolist()
    # Page 0 pads the table; its rows are NaN like all that are free.
    table = torch.zeros(batch, max(1, *pages), dtype=torch.int64)
    rows = (sum(pages) + 3) * shape.page_size
    kv = torch.full((rows, 2, shape.kv_heads, shape.head_dim), torch.nan).to(dtype)
    ks, vs = [], []
    for b, length in enumerate(shape.lens):
        mine = [free.pop() for _ in range(pages[b])]
        table[b, : len(mine)] = torch.tensor(mine)
        tokens = torch.randn(length, 2, shape.kv_heads, shape.head_dim, generator=made).to(dtype)
        for n in range(length):
            kv[mine[n // shape.page_size] * shape.page_size + n % shape.page_size] = tokens[n]
        ks.append(tokens[:, 0].transpose(0, 1))
        vs.append(tokens[:, 1].transpose(0, 1))
    return Case(
        q=q.to(device),
        kv=kv.to(device),
        table=table.to(device),
        lens=torch.tensor(shape.lens).to(device),
        page_size=shape.page_size,
        k=ks,
        v=vs,
    )


def spread(x: Tensor, order: Sequence[int], gap: int) -> Tensor:
    """The same values in memory whose dims are laid out in `order`, with `gap` NaN elements after each innermost one.

    For integers the gaps are a number that no index may be.
    """
    filler = torch.nan if x.is_floating_point() else 2**40
    laid_out = [x.shape[dim] for dim in order]
    memory = torch.full((*laid_out, gap + 1), filler, dtype=x.dtype, device=x.device)
    view = memory[..., 0].permute(*[order.index(dim) for dim in range(x.ndim)])
    return view.copy_(x)
