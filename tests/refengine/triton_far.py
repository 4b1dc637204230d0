"""Runs every kernel on tensors with elements 2^31 and more apart, and prints what differs; run as a program.

Memory that is not touched does not exist, so the interpreter must not copy its arguments to the CPU and back.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable

import torch
from torch import Tensor

from harness.refengine.triton_kernels import calls
from harness.refengine.triton_kernels.loading import prepare_kernels

FAR = 2**31
Args = dict[str, Tensor]
# Each dim that can be has three places: 2 * 2^30 is beyond 32 bits, where a stride alone is not.
SEQUENCES, HEADS, SIZE, PAGE = 3, 3, 16, 1


def map_lazily() -> Tensor:
    """Room for a stride of 2^31, and what lies behind it, of 16-bit numbers."""
    memory = mmap.mmap(-1, 2 * (FAR + 2**20), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(memory, dtype=torch.float16)


def stretched(x: Tensor, dim: int, memory: Tensor) -> Tensor:
    """The same values, the last along `dim` 2^31 or more elements behind the first."""
    strides, step = [0] * x.ndim, 1
    for other in reversed(range(x.ndim)):
        if other != dim:
            strides[other] = step
            step *= x.shape[other]
    strides[dim] = -(-FAR // (x.shape[dim] - 1))
    return memory.as_strided(x.shape, strides).copy_(x)


def decode(x: Args) -> Tensor:
    out, lse = calls.local_attention(
        *(x["q"], x["kv"], x["table"], x["lens"]),
        scale=0.3,
        page_size=PAGE,
        splits=2,
        out=x["out"],
        lse=x["lse"],
    )
    return torch.cat([out, lse[..., None]], -1).float()


def merge(x: Args) -> Tensor:
    out, lse = calls.merge_parts(x["parts"], x["lses"])
    return torch.cat([out, lse[..., None]], -1)


def extend(x: Args) -> Tensor:
    ends = torch.tensor([0, 1, 3])
    fixed = (torch.tensor([2, 0, 1]), ends, ends, torch.tensor([2, 0, 1]))
    return calls.extend_attention(x["q"], x["new"], x["prefix"], *fixed, longest=2, scale=0.3)


def arguments() -> dict[Callable[[Args], Tensor], tuple[Args, Args]]:
    """For each kernel, tensors to stretch, and others."""
    torch.manual_seed(0)
    rows = (3, 2, HEADS, SIZE)
    results = {"out": torch.zeros(SEQUENCES, HEADS, SIZE).half(), "lse": torch.zeros(SEQUENCES, HEADS).half()}
    queries = torch.randn(SEQUENCES, HEADS, SIZE).half()
    parts = {"parts": torch.randn(3, *queries.shape).half(), "lses": torch.randn(3, SEQUENCES, HEADS).half()}
    table = {"table": torch.tensor([[2, 1, 0]] * SEQUENCES), "lens": torch.tensor([3, 1, 2])}
    return {
        decode: ({"q": queries, "kv": torch.randn(rows).half(), **results}, table),
        merge: (parts, {}),
        extend: ({"q": queries, "new": torch.randn(rows).half(), "prefix": torch.randn(rows).half()}, {}),
    }


def far_pages(memory: Tensor) -> list[str]:
    """Page numbers beyond 32 bits, and rows beyond them on pages within; rows overlap, one element apart."""
    kv = memory.as_strided((FAR + 2**10, 2, 1, SIZE), (1, 64, 1, 2))
    kv[FAR : FAR + 2, 1] = torch.tensor([2.0, 4.0]).half()[:, None, None]
    wrong = []
    for page_size, dtype in ((1, torch.int64), (16, torch.int32), (16, torch.int64)):
        pages = [FAR // page_size + n for n in range(2)]
        found, _ = calls.local_attention(
            *(torch.zeros(1, 1, SIZE), kv, torch.tensor([pages], dtype=dtype), torch.tensor([2])),
            scale=1.0,
            page_size=page_size,
            splits=1,
        )
        if found.unique().tolist() != [3.0]:
            wrong.append(f"pages of {page_size} in {dtype}: {found.unique().tolist()}")
    return wrong


def main() -> None:
    prepare_kernels(cuda=False)
    from triton.runtime.interpreter import GridExecutor

    GridExecutor._init_args_hst = lambda self, args, kwargs: (args, kwargs)
    GridExecutor._restore_args_dev = lambda *_: None
    asked = 0
    for kernel, (near, others) in arguments().items():
        right = kernel(others | near).clone()
        for name, values in near.items():
            for dim in range(values.ndim):
                asked += 1
                far = stretched(values, dim, map_lazily())
                gap = float((kernel(others | near | {name: far}) - right).abs().max())
                if gap > 0:
                    print(f"{kernel.__name__}: {name} along dim {dim}: off by {gap:.3g}")
    for line in far_pages(map_lazily()):
        print(line)
    print(f"{asked} strides")


if __name__ == "__main__":
    main()
