"""Stopping early: the steps of the SPRT, its errors by exact enumeration, curtailment, two stages, and Holm."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import pytest
from gates_oracles import all_endings, closed_testing
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from harness.verdict.gates import (
    NEVER_FOUND,
    Limit,
    Sprt,
    SprtVerdict,
    TwoStage,
    baseline_limit,
    curtail,
    early_stop,
    early_stop_recorded,
    exact_limit,
    holm,
    suspicion_limit,
)

BROKEN, FINE, UNDECIDED = SprtVerdict.BROKEN, SprtVerdict.FINE, SprtVerdict.UNDECIDED


def looks_until(sprt: Sprt, *, right: int, wrong: int) -> tuple[int, SprtVerdict]:
    """Feed the same answer again and again; how many it takes, and what it shows."""
    for asked in itertools.count(1):
        verdict = sprt.update(right, wrong)
        if verdict is not UNDECIDED:
            return asked, verdict
    raise AssertionError("never decided")


@pytest.mark.parametrize(("p1", "rejects", "accepts"), [(0.835, 7, 26), (0.9054, 16, 80)])
def test_answers_in_a_row(p1, rejects, accepts):
    assert looks_until(Sprt(0.94, p1, 1e-3, 0.05), right=0, wrong=1) == (rejects, BROKEN)
    assert looks_until(Sprt(0.94, p1, 1e-3, 0.05), right=1, wrong=0) == (accepts, FINE)


@pytest.mark.parametrize(
    ("p0", "p1", "alpha", "beta"),
    [(0.94, 0.835, 5e-4, 0.05), (0.6, 0.5, 0.1, 0.3), (0.9, 0.85, 0.3, 0.1), (0.99, 0.3, 1e-3, 0.2)],
)
def test_the_sprt_is_the_likelihood_ratio(p0, p1, alpha, beta):
    """Against the two products of probabilities and Wald's bounds, in fractions, at every count up to 80 of each."""
    upper, lower = (1 - Fraction(beta)) / Fraction(alpha), Fraction(beta) / (1 - Fraction(alpha))
    of_right, of_wrong = Fraction(p1) / Fraction(p0), (1 - Fraction(p1)) / (1 - Fraction(p0))
    seen = set()
    for wrong in range(80):
        for right in range(0, 80, 3):
            ratio = of_right**right * of_wrong**wrong
            expected = BROKEN if ratio >= upper else FINE if ratio <= lower else UNDECIDED
            assert Sprt(p0, p1, alpha, beta).update(right, wrong) is expected
            seen.add(expected)
    assert BROKEN in seen and UNDECIDED in seen


@settings(max_examples=100, deadline=None)
@given(batches=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=8))
def test_only_totals_count(batches):
    whole, parts = Sprt(0.94, 0.835, 1e-3, 0.05), Sprt(0.94, 0.835, 1e-3, 0.05)
    verdicts = [parts.update(right, wrong) for right, wrong in batches]
    assert whole.update(sum(b[0] for b in batches), sum(b[1] for b in batches)) is verdicts[-1]
    assert (parts.right, parts.wrong) == (whole.right, whole.wrong)


Path = dict[int, float]


def play(
    n: int, batch: int, p: float, verdict: Callable[[int, int], SprtVerdict]
) -> dict[SprtVerdict, float]:
    """How often each verdict is reached, and how often none is (as UNDECIDED), by the law of all paths."""
    ends = dict.fromkeys(SprtVerdict, 0.0)
    paths: Path = {0: 1.0}
    for asked in range(batch, n + 1, batch):
        grown: Path = {}
        for wrong, chance in paths.items():
            for more in range(batch + 1):
                step = chance * stats.binom.pmf(more, batch, 1 - p)
                grown[wrong + more] = grown.get(wrong + more, 0.0) + step
        paths = {}
        for wrong, chance in grown.items():
            said = verdict(asked - wrong, wrong)
            if said is UNDECIDED:
                paths[wrong] = chance
            else:
                ends[said] += chance
    ends[UNDECIDED] = sum(paths.values())
    return ends


@pytest.mark.parametrize("batch", [1, 5, 25])
def test_both_errors_hold_at_any_batch_size(batch):
    """Wald's bounds, over all paths: alpha and beta with a verdict forced by nothing but the evidence."""
    alpha, beta, p0, p1 = 0.02, 0.1, 0.9, 0.7

    def verdict(right: int, wrong: int) -> SprtVerdict:
        return Sprt(p0, p1, alpha, beta).update(right, wrong)

    assert play(100, batch, p0, verdict)[BROKEN] <= alpha
    assert play(100, batch, p1, verdict)[FINE] <= beta / (1 - alpha)


@pytest.mark.parametrize("batch", [1, 4, 20])
@pytest.mark.parametrize("stop_when_fine", [True, False])
@pytest.mark.parametrize("recorded", [None, 1000])
def test_an_early_stop_and_its_final_gate_hold_alpha_and_power_together(batch, stop_when_fine, recorded):
    n, p0, alpha, power = 60, 0.9, 0.02, 0.9
    stop = (
        early_stop(n, p0=p0, alpha=alpha, power=power)
        if recorded is None
        else early_stop_recorded(n, correct=round(p0 * recorded), of=recorded, alpha=alpha, power=power)
    )
    assert stop is not None

    def verdict(right: int, wrong: int) -> SprtVerdict:
        said = stop.sprt().update(right, wrong)
        if said is BROKEN or (said is FINE and stop_when_fine):
            return said
        if right + wrong == n:
            return BROKEN if right < stop.limit.fail_below else FINE
        return UNDECIDED

    assert play(n, batch, p0, verdict)[BROKEN] <= alpha
    assert play(n, batch, stop.p1, verdict)[BROKEN] >= power
    assert stop.drop == pytest.approx(p0 - stop.p1)


def test_an_early_stop_against_a_recorded_baseline_leaves_room_for_its_luck():
    known = early_stop(200, p0=0.94, alpha=1e-3)
    recorded = early_stop_recorded(200, correct=188, of=200, alpha=1e-3)
    assert known is not None and recorded is not None
    assert (known.p0, known.alpha, known.beta) == (0.94, 5e-4, pytest.approx(0.025))
    full = early_stop(1319, p0=0.94, alpha=1e-3)
    assert full is not None and full.limit == exact_limit(1319, p0=0.94, alpha=5e-4)
    assert recorded.p0 < known.p0 - 0.02
    assert recorded.drop > known.drop
    assert recorded.limit == baseline_limit(200, correct=188, of=200, alpha=5e-4)
    below = stats.binom.cdf(recorded.limit.fail_below - 1, 200, [recorded.p0, recorded.p0 - 3e-6])
    assert below[0] <= 5e-4 < below[1]


def test_no_early_stop_where_nothing_can_be_found():
    assert early_stop(1, p0=0.94, alpha=1e-3) is None
    assert early_stop(0, p0=0.94, alpha=1e-3) is None
    assert early_stop(200, p0=1.0, alpha=1e-3) is None
    assert early_stop_recorded(200, correct=0, of=5, alpha=1e-3) is None
    assert early_stop_recorded(0, correct=5, of=5, alpha=1e-3) is None
    assert early_stop_recorded(200, correct=1000, of=1000, alpha=1e-3) is not None


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: Sprt(0.9, 0.9, 0.01, 0.05), "p1 is 0.9, allowed: below p0, which is 0.9"),
        (lambda: Sprt(1.0, 0.9, 0.01, 0.05), "p0 is 1.0, allowed: above 0 and below 1"),
        (lambda: Sprt(0.9, 0.0, 0.01, 0.05), "p1 is 0.0, allowed: above 0 and below 1"),
        (lambda: Sprt(0.9, 0.8, 0.5, 0.5), "alpha and beta are 0.5 and 0.5, allowed: less than 1 together"),
        (lambda: Sprt(0.9, 0.8, 0.1, 0.1).update(-1, 0), "right is -1, allowed: 0 or more"),
        (
            lambda: curtail(Limit(fail_below=3, alpha=0.0), 5, 4, 2),
            "wrong is 2, allowed: 0 or more, at most 1",
        ),
        (lambda: early_stop(200, p0=0.94, alpha=1.5), "alpha is 1.5, allowed: above 0 and below 1"),
        (lambda: early_stop(200, p0=0.94, alpha=0.1, power=0), "power is 0, allowed: above 0 and below 1"),
        (lambda: suspicion_limit(200, p0=0.94, share=0.0), "alpha is 0.0, allowed: above 0 and below 1"),
        (lambda: holm({"drop": math.nan}, 0.05), "p of drop is nan, allowed: 0 to 1"),
        (lambda: holm({}, 0.0), "alpha is 0.0, allowed: above 0 and below 1"),
    ],
)
def test_bad_arguments_say_what_is_allowed(call, told):
    with pytest.raises(ValueError, match="allowed") as error:
        call()
    assert str(error.value) == told


@settings(max_examples=300, deadline=None)
@given(n=st.integers(0, 40), data=st.data())
def test_curtailment_says_what_every_ending_says(n, data):
    limit = Limit(fail_below=data.draw(st.integers(0, n)), alpha=0.0)
    right = data.draw(st.integers(0, n))
    wrong = data.draw(st.integers(0, n - right))
    endings = all_endings(n, right=right, wrong=wrong, fails=lambda score: score < limit.fail_below)
    expected = UNDECIDED if len(endings) == 2 else BROKEN if endings == {True} else FINE
    assert curtail(limit, n, right, wrong) is expected


def test_curtailment_of_the_quoted_gates():
    limit = exact_limit(200, p0=0.94, alpha=1e-3)
    assert curtail(limit, 200, 0, 24) is UNDECIDED
    assert curtail(limit, 200, 0, 25) is BROKEN
    assert curtail(limit, 200, 175, 24) is UNDECIDED
    assert curtail(limit, 200, 176, 0) is FINE


def two_stage(screen: int) -> TwoStage:
    limit = exact_limit(1319, p0=0.94, alpha=1e-3)
    return TwoStage(first=200, total=1319, suspicious_below=screen, limit=limit)


@pytest.mark.parametrize(
    ("screen", "alarm", "drop", "asked"),
    [(182, 2.5e-4, 7.1, 237), (184, 4.3e-4, 5.9, 306), (185, 5.2e-4, 5.3, 367)],
)
def test_the_two_stage_table(screen, alarm, drop, asked):
    gate = two_stage(screen)
    assert gate.fails(0.94) == pytest.approx(alarm, rel=0.02)
    assert 100 * gate.drop_found(p0=0.94) == pytest.approx(drop, abs=0.051)
    assert gate.asked(0.94) == pytest.approx(asked, abs=0.6)


def test_the_screen():
    assert suspicion_limit(200, p0=0.94) == 185
    assert suspicion_limit(0, p0=0.94) == 0
    assert suspicion_limit(200, p0=0.94, share=0.05) == 182


@settings(max_examples=60, deadline=None)
@given(
    first=st.integers(0, 25),
    more=st.integers(0, 25),
    # Nearer to 0 SciPy overflows.
    p=st.one_of(st.floats(1e-6, 1.0), st.just(0.0)),
    data=st.data(),
)
def test_two_stages_are_both_scores_counted(first, more, p, data):
    screen, fail_below = data.draw(st.integers(0, first)), data.draw(st.integers(0, first + more))
    gate = TwoStage(
        first=first,
        total=first + more,
        suspicious_below=screen,
        limit=Limit(fail_below=fail_below, alpha=0.0),
    )
    law, rest = stats.binom.pmf(range(first + 1), first, p), stats.binom.pmf(range(more + 1), more, p)
    fails = sum(law[x] * rest[y] for x in range(screen) for y in range(more + 1) if x + y < fail_below)
    assert gate.fails(p) == pytest.approx(fails, abs=1e-12)
    assert gate.asked(p) == pytest.approx(first + more * law[:screen].sum(), abs=1e-9)


def test_a_screen_that_suspects_nobody_finds_nothing():
    gate = TwoStage(first=0, total=0, suspicious_below=0, limit=Limit(fail_below=0, alpha=0.0))
    assert gate.fails(0.5) == 0.0
    assert gate.drop_found(p0=0.94) == NEVER_FOUND
    with pytest.raises(ValueError, match="first is 5, allowed: 0 or more, at most 4"):
        TwoStage(first=5, total=4, suspicious_below=0, limit=Limit(fail_below=0, alpha=0.0))


def test_two_findings_of_the_published_eight():
    p_values = dict(zip("abcdefgh", (0.0004, 0.003, 0.012, 0.02, 0.04, 0.2, 0.5, 0.7), strict=True))
    assert [name for name, found in holm(p_values, 0.05).items() if found] == ["a", "b"]


@settings(max_examples=200, deadline=None)
@given(
    p_values=st.dictionaries(
        st.sampled_from("abcde"),
        st.one_of(st.floats(0.0, 1.0), st.floats(0.0, 0.05), st.sampled_from([0.01, 0.025, 0.05])),
        max_size=5,
    ),
    alpha=st.sampled_from([1e-3, 0.05, 0.2]),
)
def test_holm_is_closed_testing(p_values, alpha):
    found = holm(p_values, alpha)
    assert found == closed_testing(p_values, alpha)
    assert list(found) == list(p_values)
