"""Pools, queries and packed sequences to run kernels on, and what attention over them is: token by token in fp64.

Every row that holds no token of a case is NaN, and so is the memory between strided elements: to read one shows.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

SCALE = 0.3
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# Results of one softmax in fp32, of scores far below 100. Larger scores lose as many digits as they are longer.
CLOSE = 2e-5
# Compiled kernels round the softmax weights to the type of 16-bit values; an output is off by that, relative to them.
ROUNDED = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
# Lengths to draw from, none to beyond two blocks of the largest kernel: 64 keys, or 64 queries.
LENGTHS = (range(2), range(2, 17), range(17, 65), range(65, 150))
# Of a result that is wrong everywhere, the first few numbers tell enough.
SHOWN = 4


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


def drawn_lens(seed: int) -> tuple[int, ...]:
    """Two or three lengths, each from nothing to several blocks; the first takes turns through `LENGTHS`."""
    draw = random.Random(seed)
    others = draw.choices(LENGTHS, k=draw.randint(1, 2))
    return tuple(draw.choice(lengths) for lengths in (LENGTHS[seed % len(LENGTHS)], *others))


def agree(name: str, found: Tensor, right: Tensor, *, dims: Sequence[str], atol: float, rtol: float) -> None:
    """Fail with the first elements of `found` that are further from `right` than that, each by its place in `dims`.

    Infinities and NaN agree with themselves alone.
    """
    found = found.detach().double().cpu()
    assert found.shape == right.shape, f"{name} is {list(found.shape)}, should be {list(right.shape)}"
    near = torch.isclose(found, right.double(), atol=atol, rtol=rtol, equal_nan=True)
    wrong = (~near).nonzero().tolist()
    told = [
        f"{name} of {' '.join(f'{dim} {at}' for dim, at in zip(dims, place, strict=True))}: "
        f"{found[tuple(place)]:.6g}, should be {right[tuple(place)]:.6g}"
        for place in itertools.islice(wrong, SHOWN)
    ]
    more = f"; and {len(wrong) - SHOWN} more of {found.numel()}" if len(wrong) > SHOWN else ""
    assert not wrong, "; ".join(told) + more


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """Packed sequences as the extend kernel takes them; `tokens` are those of all prefixes, in order."""

    q: Tensor
    new: Tensor
    prefix: Tensor
    order: Tensor
    kv_of_head: Tensor
    tokens: Tensor
    starts: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def new_ends(self) -> Tensor:
        return _ends(self.counts, self.q.device)

    @property
    def prefix_ends(self) -> Tensor:
        return _ends(self.starts, self.q.device)

    @property
    def slack(self) -> float:
        """How far a right result may be from `expected`."""
        return 2e-5 if self.q.device.type == "cpu" or self.new.dtype == torch.float32 else 2e-2

    def first(self, sequence: int) -> int:
        """Where a sequence's new tokens begin."""
        return sum(self.counts[:sequence])

    def told(self) -> Iterator[tuple[int, int]]:
        """Sequences and new tokens that are worth a look, which costs as much as the kernel's."""
        for sequence, count in enumerate(self.counts):
            for token in sorted({0, count // 2, 63, 64, count - 1} & set(range(count))):
                yield sequence, token

    def expected(self, sequence: int, token: int) -> Tensor:
        """Output [H, D] of one new token: it sees its prefix, and the new tokens up to itself."""
        before, first = sum(self.starts[:sequence]), self.first(sequence)
        seen = [self.tokens[before : before + self.starts[sequence]], self.new[first : first + token + 1]]
        k, v = torch.cat(seen).unbind(1)
        heads = enumerate(self.kv_of_head.tolist())
        return torch.stack(
            [attention(self.q[first + token, head], k[:, own], v[:, own])[0] for head, own in heads]
        )


def make_packed(
    starts: tuple[int, ...], counts: tuple[int, ...], device: str, *, dtype: str = "fp32", seed: int = 0
) -> Packed:
    """Prefixes of `starts` tokens, shuffled among rows that are nobody's, and `counts` new tokens behind each.

    Queries are cut out of a product, as an engine's are: theirs are not the strides of the results.
    """
    made = torch.Generator().manual_seed(seed)
    kind = DTYPES[dtype]
    product = torch.randn(sum(counts), 9, 16, generator=made).to(kind).float()
    new = torch.randn(sum(counts), 2, 2, 16, generator=made).to(kind)
    tokens = torch.randn(sum(starts), 2, 2, 16, generator=made).to(kind)
    order = torch.randperm(sum(starts) + 3, generator=made)[: sum(starts)]
    prefix = torch.full((sum(starts) + 3, 2, 2, 16), torch.nan).to(kind)
    prefix[order] = tokens
    return Packed(
        q=product.to(device)[:, 2:5],
        new=new.to(device),
        prefix=prefix.to(device),
        order=order.to(device),
        kv_of_head=torch.tensor([1, 0, 1], device=device),
        tokens=tokens.to(device),
        starts=starts,
        counts=counts,
    )


def _ends(counts: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor([sum(counts[:n]) for n in range(len(counts) + 1)], device=device)
