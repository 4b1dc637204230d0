"""Every collective over every dim and dtype, as raw `torch.distributed` calls and as those of a communicator.

Inputs depend on the case and the rank only, so that processes and threads can make the same ones. The two sides
share nothing but the cases: the raw side calls gloo's own verbs and cuts along dims by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from comm_programs import DTYPES
from torch import Tensor

from harness.refengine.comm import Communicator

VERBS = ("all_gather", "reduce_scatter", "all_to_all", "all_reduce", "broadcast")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One call on all ranks; `exact` inputs are whole numbers, so that every order of a sum gives the same."""

    verb: str
    dtype: str
    dim: int
    contiguous: bool
    exact: bool


def all_cases() -> list[Case]:
    """Three dims, counted from either end; the last verb with a dim is along dim 2 as well."""
    return [
        Case(verb=verb, dtype=dtype, dim=dim, contiguous=contiguous, exact=exact)
        for verb in VERBS
        for dtype in DTYPES
        for dim in (range(-3, 3) if verb in ("all_gather", "reduce_scatter") else (0,))
        for contiguous in (True, False)
        for exact in (True, False)
        if exact or dtype != "int64"
    ]


def make_input(case: Case, index: int, *, rank: int, size: int) -> Tensor:
    """What a rank passes: [size, 2 * size, 3 * size], which every verb can split along every dim."""
    shape = (size, 2 * size, 3 * size)
    source = torch.Generator().manual_seed(index * 64 + rank)
    wanted = shape if case.contiguous else shape[::-1]
    x = (
        torch.randint(-9, 10, wanted, generator=source)
        if case.exact
        else torch.randn(wanted, generator=source)
    )
    x = x.to(DTYPES[case.dtype])
    return x if case.contiguous else x.permute(2, 1, 0)


def call_communicator(comm: Communicator, case: Case, index: int) -> Tensor:
    """The case as code of a rank would have it."""
    x = make_input(case, index, rank=comm.rank, size=comm.size)
    call: Any = getattr(comm, case.verb)
    match case.verb:
        case "all_gather" | "reduce_scatter":
            result: Tensor = call(x, dim=case.dim)
        case "broadcast":
            result = call(x, src=index % comm.size)
        case _:
            result = call(x)
    return result


def call_gloo(case: Case, index: int, *, rank: int, size: int) -> Tensor:
    """The case by the library's own verbs on the default group."""
    x = make_input(case, index, rank=rank, size=size).contiguous()
    match case.verb:
        case "all_gather":
            parts = [torch.empty_like(x) for _ in range(size)]
            dist.all_gather(parts, x)
            return torch.cat(parts, dim=case.dim)
        case "reduce_scatter":
            chunks = [chunk.contiguous() for chunk in x.chunk(size, dim=case.dim)]
            mine = torch.empty_like(chunks[0])
            dist.reduce_scatter(mine, chunks)
            return mine
        case "all_to_all":
            rows = torch.empty_like(x)
            dist.all_to_all_single(rows, x)
            return rows
        case "all_reduce":
            dist.all_reduce(x)
        case "broadcast":
            dist.broadcast(x, src=index % size)
    return x
