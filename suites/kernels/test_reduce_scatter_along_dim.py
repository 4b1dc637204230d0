"""reduce_scatter along any dim between real processes: the same bits as sums of whole numbers, or refused by all.

One communicator plays all cases of a group one after the other: upstream's shapes, dims from either end, three dtypes,
several loops, views that are not contiguous, and between them dims that do not divide. Where sums are taken here, some
need more than 16 bits.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from reduce_scatter_ranks import RankGroup, RanksLostError

# `gloo-native` is what NCCL runs, the library's own verb, on CPUs.
BACKENDS = {"cpu": ["shm", "gloo", "gloo-native"], "gpu": ["nccl"]}
SIZES = (2, 4, 8)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.parametrize("backend", BACKENDS[metafunc.config.getoption("--harness-profile")])


@pytest.fixture
def start(request: pytest.FixtureRequest, backend: str) -> Iterator[Callable[[int, str], RankGroup]]:
    """`start(size, program)` starts that many processes over the backend; they are gone after the test."""
    started: list[RankGroup] = []

    def make(size: int, program: str) -> RankGroup:
        profile: str = request.config.getoption("--harness-profile")
        started.append(RankGroup(backend=backend, size=size, program=program, profile=profile))
        return started[-1]

    yield make
    for group in started:
        group.close()


@pytest.mark.parametrize("size", SIZES)
def test_reduce_scatter_along_dim(
    start: Callable[[int, str], RankGroup],
    backend: str,
    size: int,
    record_property: Callable[[str, object], None],
) -> None:
    begin = time.monotonic()
    ranks = start(size, "sweep").hear()
    problems = [problem for rank in ranks for problem in rank["problems"]]
    equal, refused = ranks[0]["equal"], ranks[0]["refused"]
    message = f"{equal} calls bit-equal on each rank, {refused} of dims that do not divide refused by each"
    if "rounded" in ranks[0]:
        message += f", {ranks[0]['rounded']} sums of 16-bit numbers rounded once"
    if problems:
        more = sum(rank["more"] for rank in ranks)
        message = "; ".join(problems[:4]) + f"; and {len(problems[4:]) + more} more"
    check = {
        "name": f"{backend}, {size} ranks",
        "outcome": "failed" if problems else "passed",
        "message": message,
        "figures": {"ranks": size, "equal": equal, "refused": refused, "rounded": ranks[0].get("rounded", 0)},
        "seconds": round(time.monotonic() - begin, 3),
    }
    record_property("harness_check", check)
    assert not problems, message
    assert all((rank["equal"], rank["refused"]) == (equal, refused) for rank in ranks)
    assert min(equal, refused) > 0


def test_a_killed_rank_ends_its_group(start: Callable[[int, str], RankGroup], backend: str) -> None:
    """In mid-collective: nobody waits for it until a deadline, and no process is left."""
    group = start(4, "forever")
    pids = [rank["pid"] for rank in group.hear()]
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(RanksLostError, match="rank 1 was killed by SIGKILL"):
        group.hear()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
