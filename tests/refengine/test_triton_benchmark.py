"""The decode benchmark: what it computes from times, that it compares before it measures, and what it needs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from harness.refengine.triton_kernels.loading import prepare_kernels

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import triton_decode  # noqa: E402

SIZES = triton_decode.Sizes(batch=2, heads=4, kv_heads=2, head_dim=16, page_size=4, dtype=torch.float32)


def timer_of(milliseconds: float) -> Callable[[Callable[[], object]], float]:
    """Runs what it is to time, and says that it took so long."""

    def timed(call: Callable[[], object]) -> float:
        call()
        return milliseconds

    return timed


def test_shares_are_of_the_bandwidth_of_a_copy() -> None:
    """2 sequences of 21 tokens, K and V of 2 heads of 16 fp32: 10,752 bytes, in 2 ms, where a copy moves 6,720 a ms."""
    prepare_kernels(cuda=False)
    row = triton_decode.measure(SIZES, 21, device="cpu", copy_rate=6720.0, timer=timer_of(2.0))
    assert SIZES.kv_bytes(21) == 10_752
    assert (row.ours, row.sdpa) == pytest.approx((0.8, 0.8))
    assert triton_decode.told(row) == "| 21 | 2000 | 2000 | 80% | 80% | 1.00 |"


def test_a_copy_reads_and_writes() -> None:
    assert triton_decode.copy_bandwidth("cpu", timer_of(4.0), nbytes=1000) == 500.0


def test_wrong_outputs_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_kernels(cuda=False)
    healthy = triton_decode.Decode.sdpa
    monkeypatch.setattr(triton_decode.Decode, "sdpa", lambda decode: healthy(decode) + 0.1)
    with pytest.raises(
        SystemExit, match=r"at context 5, outputs differ from SDPA's by 0.1: nothing is measured"
    ):
        triton_decode.measure(SIZES, 5, device="cpu", copy_rate=1.0, timer=timer_of(1.0))


def test_without_a_gpu_it_says_so_in_one_line() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "triton_decode.py")],
        env={"PYTHONPATH": str(BENCHMARKS.parent), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("triton_decode.py needs a GPU")
    assert len(done.stderr.splitlines()) == 1
