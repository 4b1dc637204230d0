"""The fixtures of whole worlds and mock workers, in pytest runs of their own: marked or not, and under xdist."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from suite_runs import command, environment

TESTS = """
import pytest
import torch
from harness.topology import get_parallel


@pytest.mark.topology(tp=4, dcp=[2, 4])
def test_marked(dcp_world):
    found = dcp_world.run(lambda rank: get_parallel().dcp_group.all_gather(torch.tensor([rank.rank])).tolist())
    size = dcp_world.config.dcp_size
    assert found == [list(range(rank - rank % size, rank - rank % size + size)) for rank in range(4)]
    assert get_parallel().attn_dcp_size == 1


@pytest.mark.parametrize("turn", range(3))
def test_several_worlds(dcp_world, turn):
    for tp, dcp in ((2, 2), (4, 2)):
        ranks = dcp_world(tp=tp, dcp=dcp).run(lambda rank: (rank.rank, rank.comm.dcp.size))
        assert ranks == [(rank, dcp) for rank in range(tp)]


@pytest.mark.topology(tp=2, dcp=2)
def test_one_rank(mock_worker, parallel):
    assert mock_worker().ps == parallel.ps


def test_mock_worker(mock_worker):
    assert mock_worker(page_size=16).page_size == 16
"""

BROKEN = """
import pytest
import torch


def test_unmarked(dcp_world):
    dcp_world.run(lambda rank: None)


@pytest.mark.topology(tp=4, dcp=2)
def test_wrong_sum(dcp_world):
    def check(rank):
        assert rank.comm.dcp.all_reduce(torch.ones(1)).item() == 2 + rank.rank // 2
    dcp_world.run(check)


def test_left_out(dcp_world):
    def forget(rank):
        if rank.rank:
            rank.comm.dcp.barrier()
    dcp_world(tp=2, dcp=2).run(forget)


def test_mistyped(dcp_world):
    dcp_world(tp=2, dpc=2)
"""

NEVER_TORCH = """
import sys

def test_plugin_loads_no_torch(request):
    assert request.config.pluginmanager.has_plugin("harness.topology.marker")
    assert not [name for name in sys.modules if name == "torch" or name.startswith("harness.refengine")]
"""


def run(folder: Path, source: str, *args: str) -> tuple[int, str]:
    (folder / "test_it.py").write_text(source)
    done = subprocess.run(
        command("test_it.py", *args),
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_worlds_and_mock_workers_are_there(tmp_path: Path) -> None:
    code, out = run(tmp_path, TESTS, "-v")
    assert code == 0, out
    assert "8 passed" in out
    for name in ("test_marked[tp4-dcp2] PASSED", "test_marked[tp4-dcp4] PASSED", "[tp2-dcp2-rank1] PASSED"):
        assert name in out


def test_they_are_the_same_under_xdist(tmp_path: Path) -> None:
    code, out = run(tmp_path, TESTS, "-n", "2")
    assert code == 0, out
    assert "8 passed" in out


def test_what_is_wrong_is_said_and_nothing_hangs(tmp_path: Path) -> None:
    code, out = run(tmp_path, BROKEN)
    assert code == 1
    assert "4 failed" in out
    assert "the test has no @pytest.mark.topology(...): say which world" in out
    assert "raised on rank 2 of 4" in out
    assert "ranks that raised too: 3" in out
    assert (
        "dcp barrier cannot complete: no rank can go on: rank 0 has returned; rank 1 waits in dcp barrier"
        in out
    )
    assert "but was given dpc; did you mean 'dcp'?" in out


def test_a_test_that_asks_for_no_world_pays_for_none(tmp_path: Path) -> None:
    code, out = run(tmp_path, NEVER_TORCH)
    assert code == 0, out


@pytest.mark.parametrize("module", ["harness.topology", "harness.topology.marker", "harness.pytest_plugin"])
def test_importing_what_the_plugin_loads_imports_no_torch(module: str) -> None:
    code = f"import sys, {module}; print('torch' in sys.modules, 'pytest' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", str(module != "harness.topology")]
