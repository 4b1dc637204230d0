"""What ends the asking early, and what never does."""

from __future__ import annotations

import pytest
from answer_letters import sample

from harness.verdict.gates import early_stop
from harness.verdict.sample import Sample
from harness.verdict.watch import StopMode, StopReason, Watch

TEST = early_stop(200, p0=0.94, alpha=1e-3)


def feed(watch: Watch, letters: str, *, batch: int = 32) -> int:
    """How many questions were asked when the watch said enough; all of them where it never did."""
    whole = sample(letters).records
    for start in range(0, len(whole), batch):
        if watch.look(whole[start : start + batch]):
            return min(start + batch, len(whole))
    return len(whole)


def test_garbage_ends_after_one_batch() -> None:
    watch = Watch(mode=StopMode.BROKEN, test=TEST)
    assert feed(watch, "-" * 200) == 32
    assert watch.reason is StopReason.BROKEN


@pytest.mark.parametrize(
    ("mode", "asked"), [(StopMode.BOTH, 32), (StopMode.BROKEN, 200), (StopMode.NONE, 200)]
)
def test_only_who_asks_for_it_stops_when_fine(mode: StopMode, asked: int) -> None:
    watch = Watch(mode=mode, test=TEST)
    assert feed(watch, "+" * 200) == asked
    assert (watch.reason is StopReason.FINE) is (mode is StopMode.BOTH)


def test_a_batch_of_nothing_but_failures_ends_it() -> None:
    watch = Watch(mode=StopMode.BROKEN)
    assert feed(watch, "+" * 32 + "e" * 64) == 64
    assert watch.reason is StopReason.REFUSED


def test_a_single_answer_in_a_batch_of_failures_does_not() -> None:
    assert feed(Watch(mode=StopMode.BROKEN), ("e" * 31 + "+") * 3) == 96


@pytest.mark.parametrize(("letter", "reason"), [("-", StopReason.FLIPS), ("t", StopReason.UNFINISHED)])
def test_counts_that_are_findings_already_end_it(letter: str, reason: StopReason) -> None:
    base = sample("+" * 200)
    watch = Watch(mode=StopMode.BROKEN, baseline=base, flips_from=4, unfinished_from=4)
    assert feed(watch, letter * 3 + "+" * 29 + letter + "+" * 167) == 64
    assert watch.reason is reason


def test_one_below_the_count_goes_on() -> None:
    watch = Watch(mode=StopMode.BROKEN, baseline=sample("+" * 200), flips_from=4)
    assert feed(watch, "---" + "+" * 197) == 200
    assert watch.reason is None


def test_an_empty_baseline_never_ends_it() -> None:
    watch = Watch(mode=StopMode.BROKEN, baseline=Sample(records=()), flips_from=1)
    assert feed(watch, "-" * 64) == 64
