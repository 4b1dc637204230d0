"""Bare objects, drives that end at a call, and numbers that are whole multiples."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import EngineError
from harness.reads.bare import LastCall, Recorder, StandIn, View, bare, times


class Slotted:
    __slots__ = ("ps",)

    @property
    def doubled(self) -> int:
        size: int = self.ps * 2
        return size


class Plain:
    def __init__(self) -> None:
        raise AssertionError("constructed")


def test_a_bare_object_is_not_constructed_and_carries_what_it_is_given() -> None:
    assert bare(Plain, ps=4).ps == 4


def test_a_class_with_slots_computes_from_those_it_has() -> None:
    made = bare(Slotted, ps=4, server_args=None)
    assert made.doubled == 8
    assert not hasattr(made, "server_args")


def test_a_drive_ends_at_the_call_and_keeps_its_arguments() -> None:
    after: list[str] = []
    end = LastCall()

    def drive(size: int) -> None:
        try:
            end(size, rank=1)
        except Exception:  # noqa: BLE001 (as packages do; it must not see the end of the drive)
            after.append("handled")
        after.append("went on")

    call = end.of(drive, 8)
    assert (call.args, dict(call.named)) == ((8,), {"rank": 1})
    assert after == []


def test_a_drive_that_never_calls_is_an_error_also_after_one_that_did() -> None:
    end = LastCall()
    end.of(end, 1)
    with pytest.raises(EngineError, match="returned without the call"):
        end.of(lambda: None)


def test_what_the_driven_function_raises_passes() -> None:
    def broken() -> None:
        raise AttributeError("gone")

    with pytest.raises(AttributeError, match="gone"):
        LastCall().of(broken)


def test_a_recorder_keeps_every_call() -> None:
    recorder = Recorder()
    recorder(1)
    recorder(page_size=2)
    assert [(call.args, dict(call.named)) for call in recorder.calls] == [((1,), {}), ((), {"page_size": 2})]


def test_a_view_answers_apart_and_leaves_the_base_as_it_is() -> None:
    base: Any = type("Base", (), {"switch": False, "size": 4})()
    view = View(base, switch=True)
    assert (view.switch, view.size) == (True, 4)
    base.size = 8
    assert (view.size, base.switch) == (8, False)


@pytest.mark.parametrize(
    "take",
    [
        bool, int, float, len, operator.index, round, abs, operator.neg,
        lambda made: made + 1, lambda made: 1 + made, lambda made: made * 2, lambda made: 2 * made,
        lambda made: made - 1, lambda made: made // 2, lambda made: 8 // made, lambda made: made / 2,
        lambda made: made % 4, lambda made: 7 % made, lambda made: made**2, lambda made: made | 1,
        lambda made: made > 1, lambda made: made < 1, lambda made: made >= 1, lambda made: made <= 1,
        lambda made: made == 1, lambda made: made != 1, lambda made: made in (0, 1),
        lambda made: max(made, 1), lambda made: list(range(made)), lambda made: [0][made],
    ],
)  # fmt: skip
@pytest.mark.parametrize("reach", ["", "dcp_size", "runner.dcp_size"])
def test_a_stand_in_is_taken_for_no_number(take: Callable[[Any], object], reach: str) -> None:
    made: Any = StandIn(name="engine")
    made = operator.attrgetter(reach)(made) if reach else made
    for each in (made, made(), made["key"]):
        with pytest.raises(EngineError, match=r"the stand-in engine.* was taken for a number"):
            take(each)


def test_a_stand_in_is_itself_and_what_it_is_given() -> None:
    made = StandIn(size=3)
    assert made.size == 3
    assert made.other == made.other
    assert made.other != "a word"
    assert {made: 1}[made] == 1


@given(units=st.integers(0, 64), unit=st.integers(1, 2000), rest=st.integers(0, 2000))
def test_times_counts_whole_units_only(units: int, unit: int, rest: int) -> None:
    total = units * unit + rest
    if any(count * unit == total for count in range(units, units + rest + 1)):
        assert times(total, unit) * unit == total
    else:
        with pytest.raises(EngineError, match="no multiple"):
            times(total, unit)
