"""Engine arguments of a suite as a command line."""

from __future__ import annotations

from harness.engines import LaunchSpec, engine_flags
from harness.topology import ParallelConfig


def test_flags_in_the_order_written() -> None:
    args = {"page-size": 16, "trust-remote-code": True, "quiet": False, "bs": (1, 2, 4), "x": "a b", "f": 0.8}
    assert engine_flags(args) == [
        *("--page-size", "16", "--trust-remote-code", "--bs", "1", "2", "4"),
        *("--x", "a b", "--f", "0.8"),
    ]


def test_numbers_one_and_zero_are_no_flags() -> None:
    assert engine_flags({"a": 1, "b": 0}) == ["--a", "1", "--b", "0"]


def test_an_argument_that_is_not_set_leaves_the_launch_as_it_is() -> None:
    spec = LaunchSpec(kind="reference", model="m", parallel=ParallelConfig(), args={"dtype": "fp32"})
    assert spec.with_args(dtype=None) == spec
    assert spec.with_args(dtype="bf16").args == {"dtype": "bf16"}
