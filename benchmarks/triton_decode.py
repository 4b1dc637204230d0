"""How close the Triton decode kernel comes to the memory bandwidth of a GPU, beside torch SDPA, over context lengths.

Decode reads every key and value once, so bytes of KV over time is a bandwidth; how it compares with that of a plain
copy on the same card in the same run is what travels between cards. SDPA gets the same tokens without pages. Caches
are emptied before each measured call. Before anything is measured, both must give the same outputs.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from harness.errors import UsageError
from harness.refengine.triton_kernels import calls
from harness.refengine.triton_kernels.loading import prepare_kernels

EXAMPLE = """example:
  python benchmarks/triton_decode.py --contexts 8192 131072 1048576 --heads 32 --kv-heads 2 --head-dim 256
"""

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
# Far more than any GPU's cache, so that a copy of it is one of memory.
COPIED = 2**30
# Outputs are averages of values of deviation 1; of 16-bit ones both round the weights.
AGREE = 2e-2

# A call, and the milliseconds it takes on the device.
Timer = Callable[[Callable[[], object]], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What is decoded: the query heads of a whole DCP group over the KV heads that each of its ranks holds."""

    batch: int
    heads: int
    kv_heads: int
    head_dim: int
    page_size: int
    dtype: torch.dtype

    def kv_bytes(self, context: int) -> int:
        """Bytes of keys and values of one decode."""
        return 2 * self.batch * context * self.kv_heads * self.head_dim * self.dtype.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One context length. `ours` and `sdpa` are shares of the bandwidth of a copy."""

    context: int
    ours_us: float
    sdpa_us: float
    ours: float
    sdpa: float


class Decode:
    """The same tokens twice: in shuffled pages for the kernel, in order for SDPA."""

    def __init__(self, sizes: Sizes, context: int, *, device: str) -> None:
        made = torch.Generator(device).manual_seed(0)
        shape = (sizes.batch, context, 2, sizes.kv_heads, sizes.head_dim)
        pages = -(-context // sizes.page_size)
        self._sizes = sizes
        self._scale = 1 / math.sqrt(sizes.head_dim)
        tokens = torch.randn(shape, generator=made, device=device, dtype=sizes.dtype)
        self._keys, self._values = (x.transpose(1, 2).contiguous() for x in tokens.unbind(2))
        q = torch.randn(sizes.batch, sizes.heads, sizes.head_dim, generator=made, device=device)
        self._q = q.to(sizes.dtype)
        order = torch.randperm(sizes.batch * pages, generator=made, device=device)
        self._table = order.view(sizes.batch, pages)
        self._lens = torch.full((sizes.batch,), context, device=device)
        nth = torch.arange(context, device=device)
        rows = self._table[:, nth // sizes.page_size] * sizes.page_size + nth % sizes.page_size
        self._pool = tokens.new_empty(sizes.batch * pages * sizes.page_size, *shape[2:])
        self._pool[rows] = tokens
        # As an engine that captures graphs has it: nothing is allocated in the measured call but the splits.
        self._out = q.new_empty(q.shape, dtype=torch.float32)
        self._lse = q.new_empty(q.shape[:2], dtype=torch.float32)

    def ours(self) -> Tensor:
        """[B, H, D] by the paged kernel and its merge."""
        out, _ = calls.local_attention(
            *(self._q, self._pool, self._table, self._lens),
            scale=self._scale,
            page_size=self._sizes.page_size,
            out=self._out,
            lse=self._lse,
        )
        return out

    def sdpa(self) -> Tensor:
        """[B, H, D] by torch."""
        out = scaled_dot_product_attention(
            self._q[:, :, None], self._keys, self._values, scale=self._scale, enable_gqa=True
        )
        return out[:, :, 0]

    def disagreement(self) -> float:
        """Largest difference of the two outputs."""
        return float((self.ours() - self.sdpa().float()).abs().max())


def measure(sizes: Sizes, context: int, *, device: str, copy_rate: float, timer: Timer) -> Row:
    """Both at one context length; `copy_rate` is in bytes a millisecond. Raises SystemExit where they disagree."""
    decode = Decode(sizes, context, device=device)
    if (gap := decode.disagreement()) > AGREE:
        raise SystemExit(
            f"at context {context}, outputs differ from SDPA's by {gap:.2g}: nothing is measured"
        )
    ours, sdpa = timer(decode.ours), timer(decode.sdpa)
    fastest = sizes.kv_bytes(context) / copy_rate
    return Row(
        context=context, ours_us=ours * 1e3, sdpa_us=sdpa * 1e3, ours=fastest / ours, sdpa=fastest / sdpa
    )


def copy_bandwidth(device: str, timer: Timer, *, nbytes: int = COPIED) -> float:
    """Bytes read and written a millisecond by a plain copy."""
    source = torch.empty(nbytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * nbytes / timer(lambda: target.copy_(source))


def told(row: Row) -> str:
    """A line of the table."""
    return (
        f"| {row.context} | {row.ours_us:.0f} | {row.sdpa_us:.0f} | {row.ours:.0%} | {row.sdpa:.0%} | "
        f"{row.sdpa_us / row.ours_us:.2f} |"
    )


def parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    lengths = [2048, 8192, 32768, 131072, 524288]
    parser.add_argument("--contexts", type=int, nargs="+", default=lengths, help="tokens on this rank")
    parser.add_argument("--batch", type=int, default=4, help="sequences")
    parser.add_argument("--heads", type=int, default=32, help="query heads")
    parser.add_argument("--kv-heads", type=int, default=2)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--page-size", type=int, default=16)
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = parsed(argv)
    if not torch.cuda.is_available():
        print("triton_decode.py needs a GPU: interpreted kernels have no speed to speak of", file=sys.stderr)
        return 2
    try:
        prepare_kernels(cuda=True)
    except UsageError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    # Known to be there by now. It empties the caches before each call, and waits for the device.
    from triton.testing import do_bench

    def timer(call: Callable[[], object]) -> float:
        return float(do_bench(call, return_mode="median"))

    sizes = Sizes(
        batch=args.batch,
        heads=args.heads,
        kv_heads=args.kv_heads,
        head_dim=args.head_dim,
        page_size=args.page_size,
        dtype=DTYPES[args.dtype],
    )
    copy_rate = copy_bandwidth("cuda", timer)
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}: a copy moves {copy_rate / 1e9:.2f} TB/s.\n"
        f"Batch {sizes.batch}, {sizes.heads} query and {sizes.kv_heads} KV heads of {sizes.head_dim}, {args.dtype}, "
        f"pages of {sizes.page_size}.\n\n"
        "| context | kernel, µs | SDPA, µs | kernel / copy | SDPA / copy | SDPA's time / kernel's |\n"
        "|---|---|---|---|---|---|"
    )
    for context in args.contexts:
        row = measure(sizes, context, device="cuda", copy_rate=copy_rate, timer=timer)
        print(told(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
