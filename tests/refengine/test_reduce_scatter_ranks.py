"""Groups of real processes for a suite of collectives: nothing that happens to a rank keeps a test waiting."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

KERNELS = Path(__file__).resolve().parents[2] / "suites" / "kernels"
sys.path.insert(0, str(KERNELS))
from reduce_scatter_ranks import RankGroup, RanksLostError  # noqa: E402 - stands beside its suite

Start = Callable[..., RankGroup]
# Bounds a wait for what takes milliseconds; never a claim about speed.
PATIENCE_S = 60.0


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[RankGroup] = []

    def make(*, backend: str = "shm", program: str = "forever", profile: str = "cpu") -> RankGroup:
        started.append(RankGroup(backend=backend, size=2, program=program, profile=profile))
        return started[-1]

    yield make
    for group in started:
        group.close()


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def wait_until_gone(pids: list[int]) -> None:
    """For processes whose parent has ended as well: the kernel ends and reaps them a moment later."""
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        readable, _, _ = select.select([descriptor], [], [], PATIENCE_S)
        os.close(descriptor)
        assert readable, f"process {pid} still runs"


def test_silent_ranks_are_named_and_ended(start: Start) -> None:
    """They are in a collective and have nothing more to say."""
    group = start()
    pids = [rank["pid"] for rank in group.hear()]
    with pytest.raises(RanksLostError, match=r"^ranks \[0, 1\] said nothing within 0\.1 s$"):
        group.hear(0.1)
    wait_until_gone(pids)


def test_a_rank_that_fails_is_told(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    """What it raised is on stderr."""
    with pytest.raises(RanksLostError, match=r"rank [01] exited with code 1"):
        start(profile="no such profile", program="sweep").hear()
    assert "KeyError: 'no such profile'" in capfd.readouterr().err


@pytest.mark.skipif(torch.cuda.device_count() >= 2, reason="there are GPUs for two ranks")
def test_ranks_that_cannot_be_here_are_told(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RanksLostError, match="ended without a word"):
        start(backend="nccl", profile="gpu", program="sweep").hear()
    assert "UsageError: --comm nccl: " in capfd.readouterr().err


def test_all_end_with_whoever_started_them(tmp_path: Path) -> None:
    """A test process that is killed has no chance to close anything."""
    code = f"""
import json, sys
sys.path[:0] = {[str(KERNELS), str(KERNELS.parents[1])]!r}
from reduce_scatter_ranks import RankGroup
group = RankGroup(backend="gloo", size=2, program="forever", profile="cpu")
print(json.dumps([rank["pid"] for rank in group.hear()]), flush=True)
sys.stdin.read()
"""
    starter = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert starter.stdout is not None
    pids = [int(pid) for pid in starter.stdout.readline().strip("[]\n").split(",")]
    assert alive(pids) == pids
    starter.kill()
    starter.communicate()
    wait_until_gone(pids)
