"""Collectives of equal shapes that mean different things: another source, another dim. All ranks hear of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from comm_forks import RankForker
from comm_programs import Scenario

from harness.refengine.comm import CommError, World, WorldRank
from harness.topology import ParallelConfig

F32 = "torch.float32"
SQUARE = torch.ones(2, 2)

# What rank i of the group calls, and what each rank is told of both.
CALLS: dict[str, tuple[Callable[[Any, int], Any], tuple[str, str]]] = {
    "source": (
        lambda comm, rank: comm.broadcast(torch.ones(2), src=rank),
        (f"broadcast of [2] {F32} from rank 0", f"broadcast of [2] {F32} from rank 1"),
    ),
    "source of bytes": (
        lambda comm, rank: comm.broadcast_bytes(b"mine", src=rank),
        ("broadcast_bytes from rank 0", "broadcast_bytes from rank 1"),
    ),
    "dim of all_gather": (
        lambda comm, rank: comm.all_gather(SQUARE, dim=rank),
        (f"all_gather of [2, 2] {F32} along dim 0", f"all_gather of [2, 2] {F32} along dim 1"),
    ),
    "dim of reduce_scatter": (
        lambda comm, rank: comm.reduce_scatter(SQUARE, dim=-1 - rank),
        (f"reduce_scatter of [2, 2, 1] {F32} along dim 1", f"reduce_scatter of [2, 1, 2] {F32} along dim 0"),
    ),
    "dim of reduce_scatter, equal parts": (
        lambda comm, rank: comm.reduce_scatter(torch.ones(2, 2, 2), dim=1 + rank),
        (
            f"reduce_scatter of [2, 2, 1, 2] {F32} along dim 1",
            f"reduce_scatter of [2, 2, 2, 1] {F32} along dim 2",
        ),
    ),
    "dim of one element": (
        lambda comm, rank: comm.all_gather(torch.ones(1, 1, 1), dim=2 * rank),
        (f"all_gather of [1, 1, 1] {F32} along dim 0", f"all_gather of [1, 1, 1] {F32} along dim 2"),
    ),
}


def said(call: Callable[[], Any]) -> str:
    with pytest.raises(CommError) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize("case", CALLS)
def test_threads_that_mean_different_things_are_all_refused(case: str) -> None:
    call, (first, second) = CALLS[case]

    def work(rank: WorldRank) -> tuple[str, float]:
        comm = rank.comm.dcp
        return said(lambda: call(comm, comm.rank)), rank.comm.tp.all_reduce(torch.ones(1)).item()

    told = f"ranks of dcp disagree: rank 0 in {first}, rank 1 in {second}"
    assert World(ParallelConfig(tp_size=4, dcp_size=2)).run(work) == [(told, 4.0)] * 4


def test_the_same_dim_from_both_ends_is_the_same() -> None:
    found = World(ParallelConfig(tp_size=2)).run(
        lambda rank: rank.comm.tp.all_gather(SQUARE, dim=1 if rank.rank else -1).shape
    )
    assert found == [(2, 4)] * 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda tp: tp.broadcast(SQUARE, src=None), "src is None, ranks are 0 to 1"),
        (lambda tp: tp.broadcast(SQUARE, src=True), "src is True, ranks are 0 to 1"),
        (lambda tp: tp.broadcast_bytes(b"", src="0"), "src is '0', ranks are 0 to 1"),
        (lambda tp: tp.all_gather(SQUARE, dim=0.0), r"dim is 0\.0, but must be an integer"),
        (lambda tp: tp.reduce_scatter(SQUARE, dim=None), "dim is None, but must be an integer"),
    ],
)
def test_a_source_or_dim_that_is_no_integer_is_refused(call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(CommError, match=message):
        World(ParallelConfig(tp_size=2)).run(lambda rank: call(rank.comm.tp))


@pytest.fixture(scope="module")
def forker(tmp_path_factory: pytest.TempPathFactory) -> Any:
    forker = RankForker(tmp_path_factory.mktemp("forks"))
    yield forker
    forker.close()


def test_processes_that_mean_different_things_are_all_refused(forker: RankForker) -> None:
    for broadcast, sent, gathered in forker.run(Scenario(program="disagree_in_meaning", tp=2)):
        assert broadcast == (
            "ranks of tp disagree: rank 0 in broadcast of 8 bytes from rank 0, rank 1 in broadcast of 8 bytes"
            " from rank 1"
        )
        assert sent == (
            "ranks of tp disagree: rank 0 in broadcast_bytes of 4 bytes from rank 0, rank 1 in broadcast_bytes of"
            " 4 bytes from rank 1"
        )
        assert gathered == (
            "ranks of tp disagree: rank 0 in all_gather of 16 bytes along dim 0, rank 1 in all_gather of 16 bytes"
            " along dim 1"
        )
