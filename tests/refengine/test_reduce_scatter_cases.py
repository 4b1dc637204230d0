"""The cases of suite `kernels/reduce_scatter_along_dim` see what is wrong with a reduce_scatter, and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.refengine.comm import CommError, Communicator, ThreadWorld, base
from harness.refengine.config import EngineConfig

KERNELS = Path(__file__).resolve().parents[2] / "suites" / "kernels"
sys.path.insert(0, str(KERNELS))
import reduce_scatter_cases as cases  # noqa: E402 - stands beside its suite

Wrong = Callable[[Communicator, Tensor, int], Tensor]


class WrongCommunicator:
    """A communicator whose reduce_scatter is another function."""

    def __init__(self, inner: Communicator, wrong: Wrong) -> None:
        self._inner = inner
        self._wrong = wrong
        self.rank, self.size = inner.rank, inner.size

    def reduce_scatter(self, x: Tensor, *, dim: int = 0) -> Tensor:
        return self._wrong(self._inner, x, dim)


def another_dim(comm: Communicator, x: Tensor, dim: int) -> Tensor:
    return comm.reduce_scatter(
        x, dim=(dim + 1) % x.ndim if x.shape[(dim + 1) % x.ndim] % comm.size == 0 else dim
    )


def another_ranks_part(comm: Communicator, x: Tensor, dim: int) -> Tensor:
    return comm.reduce_scatter(x.flip(dim), dim=dim).flip(dim)


def own_part_unsummed(comm: Communicator, x: Tensor, dim: int) -> Tensor:
    comm.reduce_scatter(x, dim=dim)
    return x.chunk(comm.size, dim)[comm.rank] * comm.size


def dims_from_the_end_by_their_size(comm: Communicator, x: Tensor, dim: int) -> Tensor:
    return comm.reduce_scatter(x, dim=abs(dim) % x.ndim)


def as_if_contiguous(comm: Communicator, x: Tensor, dim: int) -> Tensor:
    size = x.shape
    if x.numel() and not x.is_contiguous():
        room = x.untyped_storage().nbytes() // x.element_size() - x.storage_offset()
        flat = torch.as_strided(x, (min(room, x.numel()),), (1,))
        x = torch.cat([flat, flat.new_zeros(x.numel() - len(flat))]).view(size)
    return comm.reduce_scatter(x, dim=dim)


def one_off(comm: Communicator, x: Tensor, dim: int) -> Tensor:
    found = comm.reduce_scatter(x, dim=dim)
    if found.dtype == torch.bfloat16 and found.numel():
        found.view(-1)[-1] += 1
    return found


def left_over(comm: Communicator, x: Tensor, dim: int) -> Tensor:
    """The result of the call before, where that had the same shape and dtype."""
    found = comm.reduce_scatter(x, dim=dim)
    before: Tensor | None = vars(comm).get("_before")
    vars(comm)["_before"] = found
    return (
        before if before is not None and (before.shape, before.dtype) == (found.shape, found.dtype) else found
    )


def rest_is_dropped(comm: Communicator, x: Tensor, dim: int) -> Tensor:
    """A dim that does not divide is cut short and split."""
    return comm.reduce_scatter(x.narrow(dim, 0, x.shape[dim] // comm.size * comm.size), dim=dim)


def refused_without_a_word(comm: Communicator, x: Tensor, dim: int) -> Tensor:
    if x.shape[dim] % comm.size:
        raise CommError("no")
    return comm.reduce_scatter(x, dim=dim)


def in_place(comm: Communicator, x: Tensor, dim: int) -> Tensor:
    found = comm.reduce_scatter(x, dim=dim)
    x.zero_() if x.is_contiguous() else None
    return found


def wider(comm: Communicator, x: Tensor, dim: int) -> Tensor:
    return comm.reduce_scatter(x, dim=dim).float()


WRONG: list[Wrong] = [
    another_dim,
    another_ranks_part,
    own_part_unsummed,
    dims_from_the_end_by_their_size,
    as_if_contiguous,
    one_off,
    left_over,
    rest_is_dropped,
    refused_without_a_word,
    in_place,
    wider,
]


def sweep(size: int, wrong: Wrong | None = None) -> list[dict[str, Any]]:
    def rank(rank: int, comms: Any) -> dict[str, Any]:
        comm = comms.tp if wrong is None else WrongCommunicator(comms.tp, wrong)
        return cases.sweep(comm, "cpu", torch.device("cpu"))

    return ThreadWorld(EngineConfig(tp=size)).run(rank)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cases.SHAPES, "cpu", ((4, 6, 8), (3, 2, 8)))


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_right_one_has_no_problems(size: int) -> None:
    for found in sweep(size):
        assert found["problems"] == []
        assert found["more"] == 0
        assert found["equal"] + found["refused"] == len(list(cases.all_cases("cpu")))
        assert (found["refused"] > 0) == (size > 1)


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
def test_a_wrong_one_is_seen(wrong: Wrong) -> None:
    assert any(found["problems"] for found in sweep(2, wrong))


def rounded(size: int) -> list[dict[str, Any]]:
    return ThreadWorld(EngineConfig(tp=size)).run(lambda rank, comms: cases.sweep_rounded(comms.tp))


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_sums_that_are_rounded_once_are_right(size: int) -> None:
    assert rounded(size) == [{"rounded": 6, "problems": []}] * size


@pytest.mark.parametrize("size", [4, 8])
def test_sums_in_16_bits_are_seen(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Every element of every rank."""
    monkeypatch.setattr(base, "_SUMMED_WIDER", ())
    for rank, found in enumerate(rounded(size)):
        assert len(found["problems"]) == found["rounded"] == 6
        assert found["problems"][0] == (
            f"rank {rank}: 2048 and ones, contiguous [8, 16, 8] fp16 dim 0 loop 0: "
            f"{1024 // size} of {1024 // size} elements differ"
        )


def test_problems_name_the_case() -> None:
    found = sweep(2, rest_is_dropped)
    assert found[1]["problems"][0].startswith(
        "rank 1: contiguous [3, 2, 8] fp16 dim -3 loop 0: a dim of length 3 was split"
    )
    assert len(found[0]["problems"]) == cases.MAX_PROBLEMS
    assert len(found[0]["problems"]) + found[0]["more"] == found[0]["refused"]


def test_every_layout_but_one_is_a_view() -> None:
    values = torch.arange(48).view(2, 4, 6)
    views = {name: layout(values) for name, layout in cases.LAYOUTS.items()}
    assert [name for name, view in views.items() if view.is_contiguous()] == ["contiguous"]
    assert all(torch.equal(views[name], values) for name in ("contiguous", "transposed", "sliced"))
    assert torch.equal(views["expanded"], values[..., :1].repeat(1, 1, 6))
