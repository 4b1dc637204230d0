"""Limits on one score: the published numbers, SciPy, every outcome counted, and what must hold for all numbers."""

from __future__ import annotations

import pytest
from gates_oracles import coins, largest_limit, urn
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from harness.verdict.gates import (
    NEVER_FOUND,
    Interval,
    Limit,
    baseline_limit,
    baseline_p,
    drop_found,
    exact_limit,
    exact_p,
    wilson,
)

levels = st.floats(1e-6, 0.5)

# n, alpha → fail below, true alpha, and the accuracies that fail in 80, 95 and 99 % of the runs; p0 is .94
EXACT = [
    (50, 1e-3, 41, 6.8e-4, 0.759, 0.707, 0.660),
    (100, 1e-3, 86, 9.2e-4, 0.823, 0.790, 0.760),
    (200, 5e-2, 182, 3.3e-2, 0.889, 0.870, 0.852),
    (200, 1e-2, 180, 9.4e-3, 0.878, 0.858, 0.840),
    (200, 1e-3, 176, 4.4e-4, 0.857, 0.835, 0.816),
    (200, 1e-4, 174, 7.3e-5, 0.846, 0.824, 0.805),
    (400, 1e-3, 360, 6.7e-4, 0.885, 0.872, 0.860),
    (660, 1e-3, 600, 6.5e-4, 0.898, 0.889, 0.880),
    (1319, 5e-2, 1225, 4.0e-2, 0.922, 0.916, 0.911),
    (1319, 1e-3, 1212, 8.3e-4, 0.912, 0.905, 0.900),
    (1319, 1e-4, 1206, 8.2e-5, 0.907, 0.901, 0.895),
]


@pytest.mark.parametrize(("n", "alpha", "fail_below", "true_alpha", "p80", "p95", "p99"), EXACT)
def test_the_exact_table(n, alpha, fail_below, true_alpha, p80, p95, p99):
    limit = exact_limit(n, p0=0.94, alpha=alpha)
    assert limit.fail_below == fail_below
    assert limit.alpha == pytest.approx(true_alpha, rel=0.015)
    found = [0.94 - drop_found(limit, n, p0=0.94, power=power) for power in (0.8, 0.95, 0.99)]
    assert found == pytest.approx([p80, p95, p99], abs=6e-4)


def test_the_two_gates_that_everybody_quotes():
    small, full = exact_limit(200, p0=0.94, alpha=1e-3), exact_limit(1319, p0=0.94, alpha=1e-3)
    assert (small.fail_below, full.fail_below) == (176, 1212)
    assert (small.alpha, full.alpha) == (pytest.approx(4.378e-4, rel=1e-3), pytest.approx(8.342e-4, rel=1e-3))
    assert 0.94 - drop_found(small, 200, p0=0.94) == pytest.approx(0.8354, abs=5e-5)
    assert 0.94 - drop_found(full, 1319, p0=0.94) == pytest.approx(0.9054, abs=5e-5)
    assert exact_p(176, 200, p0=0.94) == pytest.approx(1.005e-3, rel=1e-3)


@pytest.mark.parametrize(
    ("p0", "small", "full", "drops"),
    [
        (0.85, 153, 1080, (14.0, 5.0)),
        (0.90, 166, 1152, (12.0, 4.3)),
        (0.92, 171, 1182, (11.2, 3.9)),
        (0.95, 179, 1227, (9.8, 3.2)),
        (0.96, 182, 1243, (9.1, 2.9)),
        (0.97, 185, 1259, (8.3, 2.6)),
        (0.98, 189, 1276, (6.9, 2.2)),
    ],
)
def test_other_baselines(p0, small, full, drops):
    limits = {n: exact_limit(n, p0=p0, alpha=1e-3) for n in (200, 1319)}
    assert [limit.fail_below for limit in limits.values()] == [small, full]
    found = [100 * drop_found(limit, n, p0=p0) for n, limit in limits.items()]
    assert found == pytest.approx(drops, abs=0.051)


@pytest.mark.parametrize(
    ("n", "recorded", "fail_below"),
    [(200, 200, 169), (200, 1319, 175), (200, 6595, 176), (1319, 200, 1146), (1319, 1319, 1198), (1319, 6595, 1209)],
)  # fmt: skip
def test_the_beta_binomial_table(n, recorded, fail_below):
    limit = baseline_limit(n, correct=round(0.94 * recorded), of=recorded, alpha=1e-3)
    assert limit.fail_below == fail_below


# threshold → false alarms at .94, and how often it misses a true .90, .85, .80, in 200 questions
HAND_SET = {
    0.93: (0.22, 0.09, 0.0, 0.0),
    0.92: (0.095, 0.21, 0.002, 0.0),
    0.91: (0.033, 0.37, 0.008, 0.0),
    0.90: (0.0094, 0.56, 0.025, 1e-4),
    0.89: (0.0022, 0.73, 0.065, 5e-4),
    0.88: (4.4e-4, 0.86, 0.14, 0.002),
    0.87: (7e-5, 0.93, 0.25, 0.006),
    0.85: (1e-6, 0.99, 0.55, 0.043),
}


@pytest.mark.parametrize(("threshold", "told"), HAND_SET.items())
def test_what_hand_set_thresholds_do(threshold, told):
    fail_below = round(threshold * 200)
    alarm = exact_p(fail_below - 1, 200, p0=0.94)
    misses = [1 - exact_p(fail_below - 1, 200, p0=p) for p in (0.90, 0.85, 0.80)]
    assert [alarm, *misses] == pytest.approx(told, rel=0.06, abs=5e-4)


@settings(max_examples=150, deadline=None)
@given(n=st.integers(0, 1400), p0=st.floats(0.0, 1.0), alpha=levels)
def test_the_exact_limit_is_scipys(n, p0, alpha):
    limit = exact_limit(n, p0=p0, alpha=alpha)
    if limit.fail_below:
        assert stats.binom.cdf(limit.fail_below - 1, n, p0) <= alpha * (1 + 1e-9)
        assert limit.alpha == pytest.approx(
            stats.binom.cdf(limit.fail_below - 1, n, p0), rel=1e-9, abs=1e-290
        )
    assert stats.binom.cdf(limit.fail_below, n, p0) > alpha * (1 - 1e-9)


@settings(max_examples=100, deadline=None)
@given(n=st.integers(1, 1400), p0=st.floats(0.001, 0.999), share=st.floats(0.0, 1.0))
def test_the_exact_p_is_binomtest(n, p0, share):
    x = round(share * n)
    expected = stats.binomtest(x, n, p0, alternative="less").pvalue
    assert exact_p(x, n, p0=p0) == pytest.approx(expected, rel=1e-9, abs=1e-290)


@settings(max_examples=80, deadline=None)
@given(n=st.integers(0, 9), p0=st.fractions(0, 1, max_denominator=64), alpha=levels)
def test_the_exact_limit_by_brute_force(n, p0, alpha):
    law = coins(n, p0)
    limit = exact_limit(n, p0=float(p0), alpha=alpha)
    assert limit.fail_below == largest_limit(law, alpha)
    assert limit.alpha == pytest.approx(float(sum(law[: limit.fail_below])), rel=1e-12)


@settings(max_examples=80, deadline=None)
@given(n=st.integers(0, 8), of=st.integers(1, 60), alpha=levels, data=st.data())
def test_the_baseline_limit_by_brute_force(n, of, alpha, data):
    correct = data.draw(st.integers(0, of))
    law = urn(n, correct=correct, of=of)
    limit = baseline_limit(n, correct=correct, of=of, alpha=alpha)
    assert limit.fail_below == largest_limit(law, alpha)
    for x in range(n + 1):
        p = baseline_p(x, n, correct=correct, of=of)
        assert p == pytest.approx(float(sum(law[: x + 1])), rel=1e-12)
        assert (p <= alpha) == (x < limit.fail_below)


@settings(max_examples=150, deadline=None)
@given(n=st.integers(1, 1400), of=st.integers(1, 7000), share=st.floats(0, 1), alpha=levels, data=st.data())
def test_a_p_value_is_at_most_alpha_exactly_where_the_gate_fails(n, of, share, alpha, data):
    correct = round(share * of)
    recorded = baseline_limit(n, correct=correct, of=of, alpha=alpha)
    known = exact_limit(n, p0=correct / of, alpha=alpha)
    around = {recorded.fail_below, known.fail_below, data.draw(st.integers(0, n))}
    for x in {x + step for x in around for step in (-1, 0, 1)} & set(range(n + 1)):
        assert (baseline_p(x, n, correct=correct, of=of) <= alpha) == (x < recorded.fail_below)
        assert (exact_p(x, n, p0=correct / of) <= alpha) == (x < known.fail_below)


@pytest.mark.parametrize("x", [0, 3, 150, 175, 187])
def test_an_alpha_that_is_a_p_value_is_reached(x):
    """At most alpha, and not below it."""
    assert exact_limit(200, p0=0.94, alpha=exact_p(x, 200, p0=0.94)).fail_below == x + 1
    recorded = {"correct": 940, "of": 1000}
    assert baseline_limit(200, alpha=baseline_p(x, 200, **recorded), **recorded).fail_below == x + 1


@settings(max_examples=150, deadline=None)
@given(n=st.integers(0, 1400), p0=st.floats(0.01, 0.98), alpha=st.floats(1e-6, 0.3), more=st.integers(1, 50))
def test_limits_rise_with_alpha_with_the_baseline_and_with_n(n, p0, alpha, more):
    limit = exact_limit(n, p0=p0, alpha=alpha).fail_below
    assert limit <= exact_limit(n, p0=p0, alpha=alpha * 1.5).fail_below
    assert limit <= exact_limit(n, p0=p0 + 0.01, alpha=alpha).fail_below
    assert limit <= exact_limit(n + more, p0=p0, alpha=alpha).fail_below <= limit + more
    of = 1000
    recorded = baseline_limit(n, correct=round(p0 * of), of=of, alpha=alpha).fail_below
    assert recorded <= baseline_limit(n, correct=round(p0 * of), of=of, alpha=alpha * 1.5).fail_below
    assert recorded <= baseline_limit(n, correct=round(p0 * of) + more % 10, of=of, alpha=alpha).fail_below


@settings(max_examples=100, deadline=None)
@given(n=st.integers(1, 1400), share=st.floats(0.6, 1.0), alpha=st.floats(1e-5, 0.05))
def test_a_longer_baseline_of_the_same_accuracy_never_lowers_the_limit(n, share, alpha):
    correct = round(share * 200)
    limits = [
        baseline_limit(n, correct=correct * times, of=200 * times, alpha=alpha).fail_below
        for times in (1, 5, 50)
    ]
    assert limits == sorted(limits)


@settings(max_examples=100, deadline=None)
@given(
    n=st.integers(1, 1400), p0=st.floats(0.05, 1.0), alpha=st.floats(1e-5, 0.05), power=st.floats(0.5, 0.99)
)
def test_the_drop_found_has_its_power_and_no_smaller_one_has(n, p0, alpha, power):
    limit = exact_limit(n, p0=p0, alpha=alpha)
    drop = drop_found(limit, n, p0=p0, power=power)
    if limit.fail_below == 0:
        assert drop == NEVER_FOUND
        return
    assert stats.binom.cdf(limit.fail_below - 1, n, max(0.0, p0 - drop)) >= power - 1e-9
    assume(drop > 1e-3)
    assert stats.binom.cdf(limit.fail_below - 1, n, p0 - drop + 3e-6) < power


@pytest.mark.parametrize(
    ("n", "p0", "alpha", "limit"),
    [
        (0, 0.94, 1e-3, Limit(fail_below=0, alpha=0.0)),  # nothing asked, nothing can fail
        (1, 0.94, 1e-3, Limit(fail_below=0, alpha=0.0)),
        (1, 0.9995, 1e-3, Limit(fail_below=1, alpha=pytest.approx(5e-4))),
        (200, 1.0, 1e-3, Limit(fail_below=200, alpha=0.0)),  # one wrong answer is one too many
        (200, 0.0, 1e-3, Limit(fail_below=0, alpha=0.0)),
        (200, 0.94, 1e-250, Limit(fail_below=0, alpha=0.0)),
        (200, 0.94, 1e-240, Limit(fail_below=2, alpha=pytest.approx(1.3e-241, rel=0.05))),
    ],
)
def test_the_ends(n, p0, alpha, limit):
    found = exact_limit(n, p0=p0, alpha=alpha)
    assert found.fail_below == limit.fail_below
    assert found.alpha == limit.alpha


def test_baselines_that_were_all_right_or_all_wrong():
    assert baseline_limit(200, correct=1000, of=1000, alpha=1e-3).fail_below == 197
    assert baseline_limit(200, correct=0, of=1000, alpha=1e-3) == Limit(fail_below=0, alpha=0.0)
    assert baseline_limit(0, correct=5, of=10, alpha=1e-3) == Limit(fail_below=0, alpha=0.0)
    assert baseline_p(0, 0, correct=5, of=10) == 1.0


def test_a_gate_that_cannot_fail_finds_nothing():
    assert NEVER_FOUND == 1.0
    assert drop_found(Limit(fail_below=0, alpha=0.0), 0, p0=0.9) == NEVER_FOUND
    assert drop_found(Limit(fail_below=0, alpha=0.0), 10, p0=1.0) == NEVER_FOUND
    assert drop_found(Limit(fail_below=10, alpha=0.0), 10, p0=0.0) == 0.0


@settings(max_examples=150, deadline=None)
@given(n=st.integers(1, 3000), share=st.floats(0.0, 1.0), confidence=st.floats(0.5, 0.9999))
def test_wilson_is_scipys(n, share, confidence):
    correct = round(share * n)
    expected = stats.binomtest(correct, n).proportion_ci(confidence, method="wilson")
    found = wilson(correct, n, confidence=confidence)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert 0.0 <= found.low <= correct / n <= found.high <= 1.0


def test_wilson_of_published_scores_and_of_nothing():
    assert wilson(0, 0) == Interval(low=0.0, high=1.0)
    found = wilson(188, 200)
    assert (found.low, found.high) == pytest.approx((0.898, 0.965), abs=5e-4)
    found = wilson(1240, 1319)
    assert (found.low, found.high) == pytest.approx((0.926, 0.952), abs=5e-4)
    for n in range(1, 200):
        assert (wilson(0, n).low, wilson(n, n).high) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: exact_limit(200, p0=0.94, alpha=0.0), "alpha is 0.0, allowed: above 0 and below 1"),
        (lambda: exact_limit(200, p0=94, alpha=1e-3), "p is 94, allowed: 0 to 1"),
        (lambda: exact_p(201, 200, p0=0.94), "x is 201, allowed: 0 or more, at most 200"),
        (lambda: baseline_p(-1, 200, correct=1, of=2), "x is -1, allowed: 0 or more, at most 200"),
        (lambda: baseline_limit(200, correct=1, of=2, alpha=1.0), "alpha is 1.0, allowed: above 0 and below 1"),
        (lambda: wilson(5, 4), "correct is 5, allowed: 0 or more, at most 4"),
        (lambda: wilson(1, 4, confidence=95), "confidence is 95, allowed: above 0 and below 1"),
        (
            lambda: drop_found(Limit(fail_below=5, alpha=0.0), 4, p0=0.9),
            "fail_below is 5, allowed: 0 or more, at most 4",
        ),
        (
            lambda: drop_found(Limit(fail_below=4, alpha=0.0), 4, p0=0.9, power=1.0),
            "power is 1.0, allowed: above 0 and below 1",
        ),
        (lambda: drop_found(Limit(fail_below=4, alpha=0.0), 4, p0=-0.1), "p0 is -0.1, allowed: 0 to 1"),
    ],
)  # fmt: skip
def test_bad_arguments_say_what_is_allowed(call, told):
    with pytest.raises(ValueError, match="allowed") as error:
        call()
    assert str(error.value) == told
