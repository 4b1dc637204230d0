"""A server as a child process: whoever asks hears the same of its end, however many ask at once."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from harness.engines.child import Child

DIES = """
import sys
print("engine died: rank 1 was killed by SIGKILL", file=sys.stderr)
"""
THREADS = 16


@pytest.mark.parametrize("attempt", range(5))
def test_all_who_ask_at_once_hear_why_it_died(tmp_path: Path, attempt: int) -> None:
    child = Child([sys.executable, "-c", DIES], what="engine", env={}, log=tmp_path / "log")
    together = Barrier(THREADS)

    def ask() -> tuple[str, bool]:
        together.wait()
        return child.why_dead(), child.ended

    with ThreadPoolExecutor(THREADS) as pool:
        told = [pool.submit(ask) for _ in range(THREADS)]
        assert {one.result() for one in told} == {("rank 1 was killed by SIGKILL", True)}
    child.stop()
    assert child.ended
