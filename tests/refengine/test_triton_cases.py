"""The cases of suite `kernels/dcp_decode` say where a result is wrong, and see all that is."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "suites" / "kernels"))
import dcp_decode_cases as cases  # stands beside its suite

HEADS = ("sequence", "head")


def told(found: Tensor, right: Tensor) -> str:
    with pytest.raises(AssertionError) as raised:
        cases.agree("lse", found, right, dims=HEADS, atol=0.01, rtol=0)
    return str(raised.value).partition("\nassert")[0]


def test_a_wrong_number_is_told_by_its_place() -> None:
    right = torch.zeros(2, 3)
    right[1, 2] = 2.44
    found = right + 0.009
    cases.agree("lse", found, right, dims=HEADS, atol=0.01, rtol=0)
    found[1, 2] = 3.13
    assert told(found, right) == "lse of sequence 1 head 2: 3.13, should be 2.44"


def test_of_many_wrong_numbers_the_first_are_told() -> None:
    said = told(torch.ones(2, 3), torch.zeros(2, 3))
    assert said.startswith("lse of sequence 0 head 0: 1, should be 0; lse of sequence 0 head 1: 1, ")
    assert said.endswith("lse of sequence 1 head 0: 1, should be 0; and 2 more of 6")


def test_another_shape_is_told() -> None:
    assert told(torch.zeros(3, 2), torch.zeros(2, 3)) == "lse is [3, 2], should be [2, 3]"


@pytest.mark.parametrize("right", [0.0, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("found", [0.0, math.nan, math.inf, -math.inf])
def test_what_is_not_finite_agrees_with_itself_alone(found: float, right: float) -> None:
    given = torch.full((1, 1), found), torch.full((1, 1), right)
    if repr(found) == repr(right):
        cases.agree("lse", *given, dims=HEADS, atol=1.0, rtol=1.0)
    else:
        assert told(*given) == f"lse of sequence 0 head 0: {found:g}, should be {right:g}"


def test_extend_is_looked_at_on_both_sides_of_a_block() -> None:
    packed = cases.make_packed((3, 0), (2, 130), "cpu")
    assert list(packed.told()) == [(0, 0), (0, 1), *((1, token) for token in (0, 63, 64, 65, 129))]
