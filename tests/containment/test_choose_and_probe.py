"""Choosing a containment, deadlines, and the device inventory with its typed reasons."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.containment import Deadline, NvmlInventory, NvmlUnavailable, check_nesting, choose_containment
from harness.containment.devices import Gpu, ask, visible
from harness.errors import DeadlineError, UsageError

H200S = [Gpu(index=i, name="NVIDIA H200", uuid=f"GPU-{i}aaaa-{i}") for i in range(4)]


def test_the_environment_forces_and_the_argument_forces_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_CONTAINMENT", "guard")
    assert choose_containment().name == "guard"
    with pytest.raises(UsageError, match=r"unknown containment 'jail': allowed are pidns and guard"):
        choose_containment("jail")


def test_without_util_linux_the_guard_is_chosen_and_pidns_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HARNESS_CONTAINMENT", raising=False)
    monkeypatch.setenv("PATH", "")
    assert choose_containment().name == "guard"
    with pytest.raises(UsageError, match=r"setpriv and unshare \(util-linux\) are not installed"):
        choose_containment("pidns")


def test_a_deadline_counts_on_its_own_clock() -> None:
    now = [100.0]
    deadline = Deadline("job", 5.0, lambda: now[0])
    assert (deadline.remaining(), deadline.expires, deadline.passed) == (5.0, 105.0, False)
    now[0] = 104.0
    deadline.require()
    now[0] = 105.0
    with pytest.raises(DeadlineError, match=r"deadline 'job' of 5 s passed"):
        deadline.require()
    now[0] = 900.0
    assert deadline.remaining() == 0.0


@given(st.lists(st.floats(0.1, 1e4), min_size=1, max_size=5))
def test_nesting_is_a_strictly_falling_list(seconds: list[float]) -> None:
    scopes = {f"scope{number}": value for number, value in enumerate(seconds)}
    falls = all(seconds[i] > max(seconds[i + 1 :], default=0) for i in range(len(seconds)))
    if falls:
        check_nesting(scopes)
    else:
        with pytest.raises(UsageError, match=r"does not nest in"):
            check_nesting(scopes)


def test_gpus_are_named_by_index_and_picked_by_product_word() -> None:
    mixed = [*H200S[:2], Gpu(index=2, name="NVIDIA B200", uuid="GPU-b")]
    inventory = NvmlInventory(probe=lambda: mixed, environ={})
    assert inventory.devices("h200") == ("gpu:0", "gpu:1")
    assert inventory.devices("b200") == ("gpu:2",)
    assert inventory.devices("200") == ()
    assert inventory.unavailable() is None


def test_the_machine_is_asked_once() -> None:
    calls: list[int] = []

    def probe() -> list[Gpu]:
        calls.append(1)
        return H200S

    inventory = NvmlInventory(probe=probe, environ={})
    inventory.devices("h200")
    inventory.devices("b200")
    inventory.unavailable()
    assert calls == [1]


@pytest.mark.parametrize(
    ("mask", "indices"),
    [("2,0", [0, 2]), ("1", [1]), ("0,9,1", [0]), ("", []), ("-1", []), ("GPU-3aa", [3]), ("GPU-", [])],
)
def test_an_outer_mask_is_respected(mask: str, indices: list[int]) -> None:
    assert [one.index for one in visible(H200S, mask)] == indices
    inventory = NvmlInventory(probe=lambda: H200S, environ={"CUDA_VISIBLE_DEVICES": mask})
    assert inventory.devices("h200") == tuple(f"gpu:{index}" for index in indices)
    assert inventory.unavailable() == (None if indices else NvmlUnavailable.HIDDEN)


def test_an_unavailable_inventory_says_why() -> None:
    inventory = NvmlInventory(probe=lambda: NvmlUnavailable.NO_DRIVER, environ={})
    assert inventory.devices("h200") == ()
    assert inventory.unavailable() == "no NVIDIA driver found"


def test_a_probe_answers_fails_or_hangs() -> None:
    answer = 'print(\'[[1, "NVIDIA H200", "u1"], [0, "NVIDIA H200", "u0"]]\')'
    assert ask([sys.executable, "-c", answer], seconds=60) == [
        Gpu(index=0, name="NVIDIA H200", uuid="u0"),
        Gpu(index=1, name="NVIDIA H200", uuid="u1"),
    ]
    assert ask([sys.executable, "-c", "raise SystemExit(1)"], seconds=60) is NvmlUnavailable.FAILED
    assert ask(["sleep", "1000"], seconds=0.05) is NvmlUnavailable.HUNG
