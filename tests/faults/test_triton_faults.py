"""Faults in the Triton kernels and in what they give: seen in the engine's numbers, and by the kernels' own suite."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from engine_driver import worst_gap

from harness.faults import FAULTS, Reach, get_fault
from harness.faults.stride import as_if_contiguous
from harness.refengine.config import AttentionBackend, DcpCommBackend, EngineConfig
from harness.suites import ProfileName, expand, load_suite

pytestmark = pytest.mark.usefixtures("healthy_afterwards")

ROOT = Path(__file__).parents[2]
SUITE = ROOT / "suites/kernels/dcp_decode.yaml"
A2A, AG_RS = DcpCommBackend.A2A, DcpCommBackend.AG_RS

HEALTHY = 2e-5
# That of the torch backend's faults: the least of all, out-bf16, moves a log-probability by 7e-3.
VISIBLE = 5e-3

# Every fault that acts on what a kernel computes or merges; the others act on seams that both backends share.
OF_KERNELS = [
    fault.id for fault in FAULTS.values() if any(seam.startswith("triton-") for seam in fault.seams)
]


def gap(merge: DcpCommBackend = A2A, **others: object) -> float:
    """Of a batch in which shards are empty, splits are empty, and prefixes do not divide by dcp."""
    given = EngineConfig(
        tp=4, dcp=4, page_size=32, attention_backend=AttentionBackend.TRITON, dcp_comm_backend=merge
    )
    return worst_gap(replace(given, **others), [1, 6, 27], new_tokens=2)


def test_every_fault_of_torch_attention_and_its_merge_is_one_of_the_kernels_too() -> None:
    theirs = {"local-attention", "lse-weights"}
    assert [
        fault.id for fault in FAULTS.values() if theirs & set(fault.seams) and fault.id not in OF_KERNELS
    ] == []
    assert {fault.id for fault in FAULTS.values() if fault.reach is Reach.TRITON} == {"empty-split", "stride"}


def test_without_a_fault_nothing_moves() -> None:
    assert gap() <= HEALTHY


@pytest.mark.parametrize("fault_id", OF_KERNELS)
def test_a_fault_shows_in_the_numbers_of_an_engine(fault_id: str) -> None:
    get_fault(fault_id).install()
    assert VISIBLE <= gap() < torch.inf


@pytest.mark.parametrize("fault_id", ["merge-skipped", "lse-base", "stride"])
def test_a_fault_shows_in_the_other_merge(fault_id: str) -> None:
    get_fault(fault_id).install()
    assert VISIBLE <= gap(AG_RS) < torch.inf


@pytest.mark.parametrize("fault_id", ["empty-split", "stride"])
def test_torch_engines_do_not_run_what_these_break(fault_id: str) -> None:
    get_fault(fault_id).install()
    assert gap(attention_backend=AttentionBackend.TORCH) <= HEALTHY


def test_as_if_contiguous_reads_the_elements_in_between() -> None:
    packed = torch.arange(12.0).view(2, 2, 3)
    assert as_if_contiguous(packed[..., :2]).tolist() == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    assert as_if_contiguous(packed[..., 2]).tolist() == [[2, 3], [4, 5]]
    whole = packed[1]
    assert torch.equal(as_if_contiguous(whole), whole)


def declared() -> tuple[str, ...]:
    return expand(load_suite(SUITE, root=ROOT / "suites"), ProfileName.CPU)[0].faults


def run_suite(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    """As a person runs it: pytest on the suite's file."""
    plugins = ["-p", "no:harness", "-p", "harness.pytest_plugin", "-p", "no:cacheprovider"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", f"suites/{name}.yaml", "-v", *plugins, *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("fault_id", declared())
def test_each_fault_that_the_kernels_suite_declares_turns_it_red(fault_id: str) -> None:
    """Its tests up to the first that fails."""
    done = run_suite("kernels/dcp_decode", "-x", "--harness-fault", fault_id)
    assert done.returncode == 1, done.stdout
    assert "1 failed" in done.stdout
    assert "AssertionError" in done.stdout


@pytest.fixture(scope="module")
def cached(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Options under which dcp 1 is asked once for all runs: its answers have no fault in any of them."""
    folder = tmp_path_factory.mktemp("baselines")
    return ("--harness-baseline-cache", str(folder), "--harness-engine-sha", "0" * 40)


def test_the_engine_suite_passes_without_a_fault(cached: tuple[str, ...]) -> None:
    done = run_suite("dcp/triton_dcp", *cached)
    assert done.returncode == 0, done.stdout
    assert "5 passed" in done.stdout


@pytest.mark.parametrize("fault_id", ["empty-split", "stride", "lse-unscaled"])
def test_faults_of_kernels_turn_the_engine_suite_red(fault_id: str, cached: tuple[str, ...]) -> None:
    done = run_suite("dcp/triton_dcp", "-k", "parity", "--harness-fault", fault_id, *cached)
    assert done.returncode == 1, done.stdout
    assert "parity failed: " in done.stdout
