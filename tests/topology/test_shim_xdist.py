"""The shim under pytest-xdist: each worker process injects for itself, and each rank of each mark runs once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

SOURCE = """
import os
import pytest
from harness.topology import get_parallel, record_reads

@pytest.mark.topology(tp=8, dcp=[2, 4, 8])
def test_rank(parallel):
    with record_reads() as seen:
        assert get_parallel().dcp_rank == parallel.rank % parallel.seed.dcp_size
    assert [read.name for read in seen] == ["dcp_rank"]
    print(f"ran dcp{parallel.dcp_size} rank{parallel.rank} in {os.getpid()}")

@pytest.mark.parametrize("turn", range(8))
def test_plain(turn):
    assert get_parallel().attn_dcp_size == 1

@pytest.mark.topology(tp=2, dcp=2)
def test_failing(parallel):
    raise RuntimeError("on purpose")
"""


def test_ranks_are_spread_over_workers_and_none_leaks(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(SOURCE)
    plugins = ["-p", "no:harness", "-p", "harness.topology.marker", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "-n", "2", "--dist", "load", "-rP", "test_it.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 failed, 32 passed" in done.stdout, done.stdout
    ran = re.findall(r"^ran (dcp\d rank\d) in (\d+)$", done.stdout, flags=re.MULTILINE)
    assert sorted(name for name, _ in ran) == [
        f"dcp{dcp} rank{rank}" for dcp in (2, 4, 8) for rank in range(8)
    ]
    assert len({process for _, process in ran}) == 2
