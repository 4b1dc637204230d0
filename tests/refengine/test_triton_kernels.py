"""Kernels as compiled for GPUs, offsets past 2^31, grids; that they compute attention is suite kernels/dcp_decode."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.refengine.triton_kernels import calls
from harness.refengine.triton_kernels.loading import prepare_kernels

PROGRAM = Path(__file__).with_name("triton_programs.py")
ROOT = Path(__file__).parents[2]

# The least of the GPUs since Ampere that have bf16 (consumer cards): no block may need more, or nothing launches.
SHARED_MEMORY = 99 * 1024


def in_new_process(*args: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """One in which Triton does not interpret yet."""
    outer = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment = {**outer, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(
        [sys.executable, *args], env=environment, capture_output=True, text=True, check=False
    )


def compiled(capability: int, cache: Path) -> list[dict[str, Any]]:
    """Every kernel in each of the tiles that `calls` takes, for the longest rows that take it."""
    given: list[dict[str, Any]] = []
    for (nbytes, tiles), dtype in zip(calls._COMPILED.items(), ("bf16", "fp32", "fp32"), strict=True):
        size = nbytes // (2 if dtype == "bf16" else 4)
        sides = {"HEAD_DIM": size, "DIM_BLOCK": size}
        decode = {"GROUP": 5, "GROUP_BLOCK": 16, "PAGE_SIZE": 16, "BLOCK": tiles.decode, "UPCAST": False}
        extend = {"QUERY_BLOCK": tiles.queries, "BLOCK": tiles.keys, "UPCAST": False}
        given.append({"name": "decode_kernel", "dtype": dtype, "constants": decode | sides})
        given.append({"name": "extend_kernel", "dtype": dtype, "constants": extend | sides})
    given.append({"name": "merge_kernel", "dtype": "fp32", "constants": {"HEAD_BLOCK": tiles.heads} | sides})
    asked = json.dumps([{**each, "capability": capability} for each in given])
    done = in_new_process(str(PROGRAM), asked, TRITON_CACHE_DIR=str(cache))
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("capability", [90, 100])
def test_every_kernel_compiles_and_multiplies_indices_in_64_bits(capability: int, tmp_path: Path) -> None:
    """For Hopper and Blackwell; a compiler needs no GPU."""
    made = compiled(capability, tmp_path)
    assert len(made) == 7
    for kernel in made:
        assert kernel["products"] == ["i64"], kernel
        assert kernel["shared"] <= SHARED_MEMORY, kernel
        assert kernel["pipelined"] is (kernel["kernel"] != "merge_kernel"), kernel


# The 33rd row of a pool whose rows are 2^26 elements apart: in 32 bits, its offset would be negative. Memory that is
# not touched does not exist, so the interpreter must not copy its arguments to the CPU and back.
FAR_ROWS = """
import mmap, torch
from harness.refengine.triton_kernels import calls
from harness.refengine.triton_kernels.loading import prepare_kernels

prepare_kernels(cuda=False)
from triton.runtime.interpreter import GridExecutor

GridExecutor._init_args_hst = lambda self, args, kwargs: (args, kwargs)
GridExecutor._restore_args_dev = lambda *_: None
memory = mmap.mmap(-1, 2 * 34 * 2**26, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
kv = torch.frombuffer(memory, dtype=torch.float16).as_strided((34, 2, 1, 16), (2**26, 16, 16, 1))
kv[32:, 1] = torch.tensor([2.0, 4.0], dtype=torch.float16)[:, None, None]
page, length = torch.tensor([[2]]), torch.tensor([2])
out, lse = calls.local_attention(torch.zeros(1, 1, 16), kv, page, length, scale=1.0, page_size=16, splits=1)
print(out.unique().tolist(), lse.exp().item())
"""


def test_rows_past_two_to_the_31st_element_are_read() -> None:
    """In a process of its own: reading elsewhere would end it."""
    done = in_new_process("-c", FAR_ROWS)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[3.0] 2.0\n"


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ({"q": (2, 3, 16)}, r"q is \[2, 3, 16\]; it must be a multiple of 2 heads"),
        ({"kv": (8, 1, 2, 16)}, r"kv is \[8, 1, 2, 16\]; it must be \[rows, 2, K, 16\]"),
        ({"kv": (8, 2, 2, 8)}, r"kv is \[8, 2, 2, 8\]"),
        ({"table": (3, 2)}, r"table is \[3, 2\]; it must be \[2, pages\], as lens"),
        ({"lens": (3,)}, r"it must be \[2, pages\], as lens"),
    ],
)
def test_shapes_that_do_not_belong_together_are_refused(
    shapes: dict[str, tuple[int, ...]], said: str
) -> None:
    prepare_kernels(cuda=False)
    sizes = {"q": (2, 4, 16), "kv": (8, 2, 2, 16), "table": (2, 2), "lens": (2,)} | shapes
    q, kv = torch.zeros(sizes["q"]), torch.zeros(sizes["kv"])
    table, lens = (torch.zeros(sizes[name], dtype=torch.int64) for name in ("table", "lens"))
    with pytest.raises(ValueError, match=said):
        calls.local_attention(q, kv, table, lens, scale=1.0, page_size=4)


@pytest.mark.parametrize(
    ("processors", "programs", "tokens", "splits"),
    [
        # A GPU of 132 processors is to get 264 programs; each split reads 256 tokens or more, there are at most 128.
        (132, 264, 10**6, 1),
        (132, 8, 10**6, 33),
        (132, 1, 10**6, 128),
        (132, 8, 2048, 8),
        (132, 8, 255, 1),
    ],
)
def test_splits_fill_the_device_and_no_more(
    monkeypatch: pytest.MonkeyPatch, processors: int, programs: int, tokens: int, splits: int
) -> None:
    class Properties:
        multi_processor_count = processors

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: Properties)
    assert calls.num_splits(programs=programs, tokens=tokens, device=torch.device("cuda")) == splits


@pytest.mark.parametrize(("tokens", "splits"), [(1, 1), (16, 1), (17, 2), (10**6, 2)])
def test_the_interpreter_gets_something_to_merge_and_no_more(tokens: int, splits: int) -> None:
    assert calls.num_splits(programs=1, tokens=tokens, device=torch.device("cpu")) == splits
