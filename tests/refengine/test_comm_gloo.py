"""Collectives between threads give what gloo's own give between processes: 2, 4 and 8 ranks, every dim and dtype.

Where the order of a sum decides nothing the two are bit-equal: nothing is summed, or whole numbers are, or two
ranks are (a + b is b + a, rounded once). Sums of real numbers over 4 and 8 ranks are in the library's order
there and in rank order here, so these are as near as that allows.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from comm_forks import RankForker
from comm_programs import Scenario, same
from gloo_cases import Case, all_cases, call_communicator
from torch import Tensor

from harness.refengine.comm import WorldMaker

SUMS = ("reduce_scatter", "all_reduce")
# A sum over 8 ranks in any two orders differs by at most 7 roundings of partial sums, each below 2 ** -24 (fp32) or
# 2 ** -9 (bf16, which gloo rounds at each step) of a value that is below 16 for 8 draws from a normal distribution.
BOUNDS = {"fp32": 7 * 16 * 2**-24, "bf16": 7 * 16 * 2**-9}


@pytest.fixture(scope="module")
def forker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankForker]:
    forker = RankForker(tmp_path_factory.mktemp("ranks"))
    yield forker
    forker.close()


def assert_alike(case: Case, ours: Tensor, gloos: Tensor, *, size: int) -> None:
    if case.exact or case.verb not in SUMS or size == 2:
        assert same(ours, gloos), case
    else:
        assert (ours.shape, ours.dtype) == (gloos.shape, gloos.dtype), case
        assert (ours - gloos).abs().max() <= BOUNDS[case.dtype], case


@pytest.mark.parametrize("size", [2, 4, 8])
def test_threads_equal_gloo(forker: RankForker, size: int) -> None:
    """One process group per size does all cases."""
    cases = all_cases()
    in_processes = forker.run(Scenario(backend="gloo", program="raw_gloo", tp=size, dcp=size))
    in_threads = WorldMaker(None)(tp=size, dcp=size).run(
        lambda rank: [call_communicator(rank.comm.dcp, case, index) for index, case in enumerate(cases)]
    )
    assert len(in_processes) == len(in_threads) == size
    for ours, gloos in zip(in_threads, in_processes, strict=True):
        for case, mine, theirs in zip(cases, ours, gloos, strict=True):
            assert_alike(case, mine, theirs, size=size)


def test_the_cases_hold_every_dim_of_every_verb_that_has_one() -> None:
    for verb in ("all_gather", "reduce_scatter"):
        assert {case.dim for case in all_cases() if case.verb == verb} == {-3, -2, -1, 0, 1, 2}
    assert {case.dtype for case in all_cases() if case.exact} == {"fp32", "bf16", "int64"}


def test_a_result_that_differs_is_told_apart() -> None:
    """So that equality above means something: one rank's input moved by one bit is another result."""
    case = Case(verb="all_gather", dtype="fp32", dim=1, contiguous=True, exact=False)
    results = WorldMaker(None)(tp=2, dcp=2).run(lambda rank: call_communicator(rank.comm.dcp, case, 0))
    moved = results[0].clone()
    moved[0, 0, 0] = torch.nextafter(moved[0, 0, 0], torch.tensor(9.0))
    assert same(results[0], results[1])
    assert not same(moved, results[1])
