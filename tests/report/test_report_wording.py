"""How durations, devices and foreign text are worded."""

from __future__ import annotations

import pytest

from harness.report.wording import devices, duration, printable


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1m 00s"),
        (3599.4, "59m 59s"),
        (3599.6, "1h 00m"),
        (7505, "2h 05m"),
        (float("nan"), "?"),
    ],
)
def test_durations_carry_into_the_next_unit(seconds, words):
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([], ""),
        (["cpu:0"], "cpu:0"),
        ([f"gpu:{n}" for n in range(8)], "gpu:0-7"),
        (["cpu:0", "cpu:2", "cpu:3", "gpu:4"], "cpu:0 cpu:2-3 gpu:4"),
        (["MIG-1a", "gpu:x"], "MIG-1a gpu:x"),
    ],
)
def test_neighbouring_devices_are_joined(names, words):
    assert devices(names) == words


def test_only_tabs_and_newlines_survive_of_the_control_characters():
    everything = "".join(map(chr, range(256)))
    kept = [c for c in printable(everything) if not c.isprintable()]
    assert kept == ["\t", "\n", "\xa0", "\xad"]
