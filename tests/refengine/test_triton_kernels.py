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
from harness.refengine.triton_kernels.shapes import require_longest

PROGRAM = Path(__file__).with_name("triton_programs.py")
FAR = Path(__file__).with_name("triton_far.py")
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


def test_what_lies_past_two_to_the_31st_element_is_read_and_written() -> None:
    """Along every dim of every tensor, and by page number. In a process of its own: reading elsewhere would end it."""
    done = in_new_process(str(FAR))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "30 strides\n"


def made(sizes: dict[str, tuple[int, ...]], *, whole: tuple[str, ...] = ()) -> dict[str, torch.Tensor]:
    """Zeros of these sizes; those named in `whole` are integers."""
    return {
        name: torch.zeros(size, dtype=torch.int64 if name in whole else torch.float32)
        for name, size in sizes.items()
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"q": (2, 64)}, r"^q is \[2, 64\]; it must be \[B, H, D\]$"),
        ({"q": (2, 3, 16)}, r"^q is \[2, 3, 16\]; it must be a multiple of 2 heads$"),
        ({"kv": (8, 2, 16)}, r"^kv is \[8, 2, 16\]; it must be \[rows, 2, K, 16\]$"),
        ({"kv": (8, 1, 2, 16)}, r"^kv is \[8, 1, 2, 16\]; it must be \[rows, 2, K, 16\]$"),
        ({"kv": (8, 2, 2, 8)}, r"^kv is \[8, 2, 2, 8\]"),
        ({"kv": (8, 2, 0, 16)}, r"^K, the KV heads of kv, is 0; it must be 1 or more$"),
        ({"table": (3, 2)}, r"^table is \[3, 2\]; it must be \[2, pages\]$"),
        ({"lens": (3,)}, r"^lens is \[3\]; it must be \[2\]$"),
        ({"out": (2, 2, 16)}, r"^out is \[2, 2, 16\]; it must be \[2, 4, 16\]$"),
        ({"out": (1, 2, 4, 16)}, r"^out is \[1, 2, 4, 16\]; it must be \[2, 4, 16\]$"),
        ({"lse": (4, 2)}, r"^lse is \[4, 2\]; it must be \[2, 4\]$"),
        ({"page_size": 0}, r"^page_size is 0; it must be 1 or more$"),
        ({"splits": 0}, r"^splits is 0; it must be 1 or more$"),
        ({"splits": -1}, r"^splits is -1; it must be 1 or more$"),
    ],
)
@pytest.mark.parametrize("splits", [1, 2])
def test_a_decode_refuses_what_does_not_belong_together(
    given: dict[str, Any], said: str, splits: int
) -> None:
    prepare_kernels(cuda=False)
    how = {"page_size": 4, "splits": splits}
    sizes = {"q": (2, 4, 16), "kv": (8, 2, 2, 16), "table": (2, 2), "lens": (2,), "out": (2, 4, 16)}
    sizes |= {"lse": (2, 4)} | {name: size for name, size in given.items() if name not in how}
    tensors = made(sizes, whole=("table", "lens"))
    with pytest.raises(ValueError, match=said):
        calls.local_attention(**tensors, scale=1.0, **how | {n: x for n, x in given.items() if n in how})


def test_lengths_beyond_the_page_table_are_refused_on_a_cpu() -> None:
    """Its rows are in memory, so it costs nothing; a kernel would read whatever lies behind."""
    tensors = made({"q": (2, 4, 16), "kv": (8, 2, 2, 16), "table": (2, 2)}, whole=("table",))
    with pytest.raises(ValueError, match=r"^the longest of lens is 9; it must be 8 at most"):
        calls.local_attention(**tensors, lens=torch.tensor([8, 9]), scale=1.0, page_size=4)


@pytest.mark.parametrize(
    ("parts", "lses", "said"),
    [
        ((2, 4, 16), (3, 2, 4), r"^parts is \[2, 4, 16\]; it must be \[splits, 2, 4, 16\]$"),
        ((3, 2, 4, 8), (3, 2, 4), r"^parts is \[3, 2, 4, 8\]; it must be \[splits, 2, 4, 16\]$"),
        ((0, 2, 4, 16), (0, 2, 4), r"^splits is 0; it must be 1 or more$"),
        ((3, 2, 4, 16), (1, 2, 4), r"^lses is \[1, 2, 4\]; it must be \[3, 2, 4\]$"),
    ],
)
def test_splits_have_a_place_each(parts: tuple[int, ...], lses: tuple[int, ...], said: str) -> None:
    sizes = {
        "q": (2, 4, 16),
        "kv": (8, 2, 2, 16),
        "table": (2, 2),
        "lens": (2,),
        "parts": parts,
        "lses": lses,
    }
    with pytest.raises(ValueError, match=said):
        calls.decode_splits(**made(sizes, whole=("table", "lens")), scale=1.0, page_size=4)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"parts": (2, 4, 16)}, r"^parts is \[2, 4, 16\]; it must be \[R, B, H, D\]$"),
        ({"parts": (0, 2, 4, 16), "lses": (0, 2, 4)}, r"^the number of parts is 0; it must be 1 or more$"),
        ({"lses": (3, 4, 2)}, r"^lses is \[3, 4, 2\]; it must be \[3, 2, 4\]$"),
        ({"out": (2, 4, 8)}, r"^out is \[2, 4, 8\]; it must be \[2, 4, 16\]$"),
        ({"lse": (2,)}, r"^lse is \[2\]; it must be \[2, 4\]$"),
    ],
)
def test_a_merge_refuses_what_does_not_belong_together(given: dict[str, Any], said: str) -> None:
    sizes = {"parts": (3, 2, 4, 16), "lses": (3, 2, 4), "out": (2, 4, 16), "lse": (2, 4)}
    with pytest.raises(ValueError, match=said):
        calls.merge_parts(**made(sizes | given))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"q": (5, 48)}, r"^q is \[5, 48\]; it must be \[T, H, D\]$"),
        ({"new": (4, 2, 2, 16)}, r"^new is \[4, 2, 2, 16\]; it must be \[5, 2, K, 16\]$"),
        ({"prefix": (9, 2, 1, 16)}, r"^prefix is \[9, 2, 1, 16\]; it must be \[rows, 2, 2, 16\]$"),
        ({"order": (9, 1)}, r"^order is \[9, 1\]; it must be \[prefix tokens\]$"),
        ({"prefix_ends": (2,)}, r"^prefix_ends is \[2\]; it must be \[3\]$"),
        ({"kv_of_head": (2,)}, r"^kv_of_head is \[2\]; it must be \[3\]$"),
        ({"longest": 3}, r"^longest is 3; it must be 4 or more, the new tokens of one sequence$"),
    ],
)
def test_an_extend_refuses_what_does_not_belong_together(given: dict[str, Any], said: str) -> None:
    sizes: dict[str, tuple[int, ...]] = {"q": (5, 3, 16), "new": (5, 2, 2, 16), "prefix": (9, 2, 2, 16)}
    sizes |= {"order": (9,), "prefix_ends": (3,), "kv_of_head": (3,)}
    sizes |= {name: size for name, size in given.items() if name in sizes}
    whole = ("order", "prefix_ends", "kv_of_head")
    ends, longest = torch.tensor([0, 1, 5]), given.get("longest", 4)
    with pytest.raises(ValueError, match=said):
        calls.extend_attention(**made(sizes, whole=whole), new_ends=ends, longest=longest, scale=1.0)


def test_where_ends_cannot_be_read_a_bound_is_refused_that_never_suffices() -> None:
    """Five tokens of two sequences: one has three."""
    ends = torch.zeros(3, dtype=torch.int64, device="meta")
    require_longest(3, ends, tokens=5)
    with pytest.raises(ValueError, match=r"^longest is 2; it must be 3 or more"):
        require_longest(2, ends, tokens=5)


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
