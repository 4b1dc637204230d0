"""What each rank of `test_reduce_scatter_along_dim` does: every case on one communicator, judged by whole numbers.

Inputs are whole numbers that depend on the case and the rank alone, so every rank can draw those of all ranks: it adds
them up as int64, cuts out its own part and wants exactly that, in bits. Sums stay below 256, which every dtype holds;
only those of `sweep_rounded` do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor

from harness.refengine.comm import CommError, Communicator

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
# Of the same width: equal as these is equal in bits.
BITS = {torch.float16: torch.int16, torch.bfloat16: torch.int16, torch.float32: torch.int32}

# Upstream's six, head_num x batch_size x head_dim; and what CPUs are given in their place, six to eight times smaller
# where they are large. The third is still longer than a slot of shared memory in fp32.
UPSTREAM_SHAPES = ((8, 16, 32), (16, 64, 128), (4, 1024, 512), (16, 3, 128), (64, 5, 512), (128, 7, 512))
SHAPES = {
    "gpu": UPSTREAM_SHAPES,
    "cpu": ((8, 16, 32), (16, 64, 16), (4, 1024, 80), (16, 3, 128), (64, 5, 64), (128, 7, 64)),
}
LOOPS = {"gpu": 8, "cpu": 2}
# Other numbers of dims, nothing at all, and lengths that no number of ranks divides.
OTHER_SHAPES = ((16,), (8, 16, 24), (8, 2, 3, 8), (8, 0, 16), (3, 5, 7))
# In the memory that the view of a slice leaves out: seen in a sum at once, and finite in every dtype.
POISON = 999
MAX_PROBLEMS = 12
# From here on, the dtype has every second whole number alone: another 1 is lost, but several at once are not.
COARSE = {"fp16": 2048, "bf16": 256}


def contiguous(values: Tensor) -> Tensor:
    return values


def transposed(values: Tensor) -> Tensor:
    """The same values behind strides that rise from the first dim to the last."""
    backwards = tuple(reversed(range(values.ndim)))
    return values.permute(backwards).contiguous().permute(backwards)


def sliced(values: Tensor) -> Tensor:
    """Every second element along each dim of something larger."""
    larger = torch.full([2 * length + 1 for length in values.shape], POISON, dtype=values.dtype)
    view = larger.to(values.device)[tuple(slice(1, None, 2) for _ in values.shape)]
    view.copy_(values)
    return view


def expanded(values: Tensor) -> Tensor:
    """Its first slice along the last dim, as often as that dim is long: in memory once, with stride 0."""
    return values.narrow(-1, 0, 1).expand(values.shape) if values.numel() else values


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    layout.__name__: layout for layout in (contiguous, transposed, sliced, expanded)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One call; `dim` counts from either end, and may be one that cannot be split."""

    shape: tuple[int, ...]
    layout: str
    dtype: str
    dim: int
    loop: int

    def __str__(self) -> str:
        return f"{self.layout} {list(self.shape)} {self.dtype} dim {self.dim} loop {self.loop}"


def all_cases(profile: str) -> Iterator[Case]:
    """Large shapes as they are, small ones in every layout too; one shape after the other, one loop after the other."""
    views = [name for name in LAYOUTS if name != contiguous.__name__]
    for shape in (*SHAPES[profile], *OTHER_SHAPES):
        for loop in range(LOOPS[profile]):
            layouts = [contiguous.__name__, *(views if shape in OTHER_SHAPES and loop == 0 else [])]
            for layout, dtype, dim in product(layouts, DTYPES, range(-len(shape), len(shape))):
                yield Case(shape=shape, layout=layout, dtype=dtype, dim=dim, loop=loop)


class Numbers:
    """The whole numbers of all ranks, 0 to 15, drawn for one shape and loop at a time, and their sum.

    A case adds a number of its own, so that no two neighbours want the same result: one that is left over from the
    call before is never taken for right.
    """

    def __init__(self, *, rank: int, size: int) -> None:
        self._rank = rank
        self._size = size
        self._drawn_for: tuple[tuple[int, ...], int] | None = None
        self._own = self._total = torch.empty(0)

    def own(self, case: Case, index: int) -> Tensor:
        """What this rank passes, as int64."""
        self._draw(case)
        return LAYOUTS[case.layout](self._own + index % 7)

    def expected(self, case: Case, index: int) -> Tensor:
        """This rank's part of the sum over all ranks, along a dim that divides."""
        self._draw(case)
        total = LAYOUTS[case.layout](self._total + self._size * (index % 7))
        width = total.shape[case.dim] // self._size
        return total.narrow(case.dim, self._rank * width, width)

    def _draw(self, case: Case) -> None:
        if self._drawn_for == (case.shape, case.loop):
            return
        self._drawn_for = (case.shape, case.loop)
        self._total = torch.zeros(case.shape, dtype=torch.int64)
        for rank in range(self._size):
            source = torch.Generator().manual_seed(case.loop * self._size + rank)
            drawn = torch.randint(0, 16, case.shape, generator=source)
            self._total += drawn
            if rank == self._rank:
                self._own = drawn


def sweep(comm: Communicator, profile: str, device: torch.device) -> dict[str, Any]:
    """All cases on this one communicator; how many were equal and refused, and the first that were not."""
    numbers = Numbers(rank=comm.rank, size=comm.size)
    problems: list[str] = []
    refused = total = 0
    for total, case in enumerate(all_cases(profile), 1):
        given = LAYOUTS[case.layout](numbers.own(case, total).to(DTYPES[case.dtype]).to(device))
        if case.shape[case.dim] % comm.size:
            refused += 1
            found = _not_refused(comm, given, case)
        else:
            found = _differs(comm, given, case, numbers.expected(case, total))
        if found is not None:
            problems.append(f"rank {comm.rank}: {case}: {found}")
    return {
        "equal": total - refused,
        "refused": refused,
        "problems": problems[:MAX_PROBLEMS],
        "more": len(problems[MAX_PROBLEMS:]),
    }


def sweep_rounded(comm: Communicator) -> dict[str, Any]:
    """Sums that no 16-bit number is, along every dim: added up wider and rounded once, as `Communicator` promises.

    Rank 0 gives 2048 or 256 and every other rank 1, which 16-bit sums in rank order lose. Between two ranks there is
    one sum, and nothing to see.
    """
    problems: list[str] = []
    cases = [
        Case(shape=(8, 16, 8), layout=contiguous.__name__, dtype=dtype, dim=dim, loop=0)
        for dtype in COARSE
        for dim in range(3)
    ]
    for case in cases:
        large = COARSE[case.dtype]
        given = torch.full(case.shape, large if comm.rank == 0 else 1).to(DTYPES[case.dtype])
        part = list(case.shape)
        part[case.dim] //= comm.size
        found = _differs(comm, given, case, torch.full(part, large + comm.size - 1))
        if found is not None:
            problems.append(f"rank {comm.rank}: {large} and ones, {case}: {found}")
    return {"rounded": len(cases), "problems": problems}


def _differs(comm: Communicator, given: Tensor, case: Case, expected: Tensor) -> str | None:
    before = given.clone()
    found = comm.reduce_scatter(given, dim=case.dim)
    if not torch.equal(given, before):
        return "the argument was written to"
    if (found.dtype, found.shape) != (given.dtype, expected.shape):
        return f"is {list(found.shape)} {found.dtype}, not {list(expected.shape)} {given.dtype}"
    wanted = expected.to(given.dtype).to(given.device).contiguous()
    bits = BITS[given.dtype]
    wrong = int((found.contiguous().view(bits) != wanted.view(bits)).sum())
    return f"{wrong} of {wanted.numel()} elements differ" if wrong else None


def _not_refused(comm: Communicator, given: Tensor, case: Case) -> str | None:
    dim, length = case.dim % len(case.shape), case.shape[case.dim]
    try:
        comm.reduce_scatter(given, dim=case.dim)
    except CommError as error:
        wanted = f"cannot split dim {dim} of length {length} into {comm.size} equal parts"
        return None if wanted in str(error) else f"was refused, saying {error}"
    return f"a dim of length {length} was split into {comm.size}"
