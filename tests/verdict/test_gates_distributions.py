"""Tails of the two score distributions: SciPy to ten digits, also where they are tiny, and all outcomes counted."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from gates_oracles import coins, urn
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from harness.verdict.distributions import BetaBinomial, Binomial, log_beta

# SciPy's own error in a beta-binomial of thousands is a tenth of this.
DIGITS = 1e-10
# Below, the digits of SciPy's own tails run out; ours do not, as fractions show.
SMALLEST = 1e-200

sizes = st.integers(0, 1500)
chances = st.one_of(
    # Nearer to the ends SciPy overflows or loses digits itself; brute force goes there.
    st.floats(1e-6, 1.0 - 1e-6),
    st.sampled_from([0.0, 0.002, 0.5, 0.94, 0.999, 1.0]),
)


def same(found: float, expected: float) -> bool:
    if expected < SMALLEST:
        return found < 2 * SMALLEST
    return math.isclose(found, expected, rel_tol=DIGITS)


@settings(max_examples=400, deadline=None)
@given(n=sizes, p=chances, data=st.data())
@example(n=1319, p=0.94, data=None)
def test_binomial_tails_are_scipys(n, p, data):
    for c in (0, 1, n, n + 1, n // 3) if data is None else [data.draw(st.integers(0, n + 1))]:
        assert same(Binomial(n, p).below(c), stats.binom.cdf(c - 1, n, p))
        assert same(Binomial(n, p).at_least(c), stats.binom.sf(c - 1, n, p))
        assert same(Binomial(n, p).pmf(c), stats.binom.pmf(c, n, p))


@settings(max_examples=300, deadline=None)
@given(n=sizes, of=st.integers(1, 7000), share=st.floats(0.0, 1.0), data=st.data())
def test_beta_binomial_tails_are_scipys(n, of, share, data):
    correct, c = round(share * of), data.draw(st.integers(0, n + 1))
    scores = BetaBinomial.after(n, correct=correct, of=of)
    # SciPy's own cdf and sf of this law lose digits in one of the tails, its pmf in none.
    pmf = stats.betabinom.pmf(range(n + 1), n, correct + 0.5, of - correct + 0.5)
    assert same(scores.below(c), math.fsum(pmf[:c]))
    assert same(scores.at_least(c), math.fsum(pmf[c:]))


@pytest.mark.parametrize(("n", "p", "c"), [(896, 0.5546875, 13), (1319, 0.9375, 700), (1319, 0.9375, 1190)])
def test_far_tails_keep_their_digits(n, p, c):
    right, wrong = Fraction(p), 1 - Fraction(p)
    exact = sum(math.comb(n, k) * right**k * wrong ** (n - k) for k in range(c))
    assert Binomial(n, p).below(c) == pytest.approx(float(exact), rel=1e-11, abs=0.0)


def test_a_tail_too_small_for_a_double_is_zero():
    assert Binomial(1319, 0.94).below(1) == 0.0
    assert Binomial(1319, 0.94).at_least(1) == 1.0
    assert Binomial(5000, 0.01).at_least(4900) == 0.0


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(0, 9),
    p=st.one_of(
        st.fractions(0, 1, max_denominator=50),
        st.sampled_from([Fraction(1, 2**90), 1 - Fraction(1, 2**45), 1 - Fraction(1, 2**53)]),
    ),
)
def test_binomial_is_all_outcomes_counted(n, p):
    law = coins(n, p)
    for c in range(n + 2):
        assert Binomial(n, float(p)).below(c) == pytest.approx(float(sum(law[:c])), rel=1e-12)
        assert Binomial(n, float(p)).at_least(c) == pytest.approx(float(sum(law[c:])), rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(n=st.integers(0, 8), of=st.integers(1, 40), data=st.data())
def test_beta_binomial_is_polyas_urn(n, of, data):
    correct = data.draw(st.integers(0, of))
    law = urn(n, correct=correct, of=of)
    scores = BetaBinomial.after(n, correct=correct, of=of)
    for k in range(n + 1):
        assert scores.pmf(k) == pytest.approx(float(law[k]), rel=1e-12)
    for c in range(n + 2):
        assert scores.below(c) == pytest.approx(float(sum(law[:c])), rel=1e-12)
        assert scores.at_least(c) == pytest.approx(float(sum(law[c:])), rel=1e-12)


def test_a_beta_binomial_with_two_peaks_is_summed_whole():
    law = [float(p) for p in urn(8, correct=0, of=0)]
    scores = BetaBinomial(8, 0.5, 0.5)
    assert [scores.below(c) for c in range(10)] == pytest.approx([sum(law[:c]) for c in range(10)])


@settings(max_examples=200, deadline=None)
@given(n=st.integers(1, 1500), p=chances, c=st.integers(-3, 1503))
def test_the_two_tails_are_everything(n, p, c):
    scores = Binomial(n, p)
    assert scores.below(c) + scores.at_least(c) == pytest.approx(1.0, abs=1e-12)
    assert scores.below(c) <= scores.below(c + 1) + 1e-15
    assert 0.0 <= scores.below(c) <= 1.0


@pytest.mark.parametrize(("a", "b"), [(0.5, 0.5), (1, 1), (14.9, 15.1), (0.5, 7000.5), (6200.5, 395.5)])
def test_log_beta(a, b):
    expected = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    assert log_beta(a, b) == pytest.approx(expected, rel=1e-12, abs=1e-10)
    assert log_beta(a, b) == pytest.approx(log_beta(b, a), rel=1e-13, abs=1e-13)


def test_outside_of_the_scores_nothing_happens():
    for scores in (Binomial(5, 0.5), BetaBinomial.after(5, correct=1, of=2)):
        assert scores.pmf(-1) == scores.pmf(6) == 0.0
        assert scores.below(0) == scores.below(-4) == scores.at_least(6) == 0.0
        assert scores.below(6) == scores.at_least(0) == 1.0


def test_no_question_at_all():
    for scores in (Binomial(0, 0.5), BetaBinomial.after(0, correct=1, of=2)):
        assert (scores.below(0), scores.below(1), scores.at_least(0), scores.at_least(1)) == (0, 1, 1, 0)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Binomial(-1, 0.5), "n is -1, allowed: 0 or more"),
        (lambda: Binomial(2.0, 0.5), "n is 2.0, allowed: a whole number"),
        (lambda: Binomial(True, 0.5), "n is True, allowed: a whole number"),
        (lambda: Binomial(5, 1.2), "p is 1.2, allowed: 0 to 1"),
        (lambda: Binomial(5, math.nan), "p is nan, allowed: 0 to 1"),
        (lambda: BetaBinomial(5, 0.0, 1.0), "a is 0.0, allowed: above 0"),
        (lambda: BetaBinomial(5, 1.0, math.inf), "b is inf, allowed: above 0"),
        (lambda: BetaBinomial.after(5, correct=0, of=0), "of is 0, allowed: 1 or more"),
        (lambda: BetaBinomial.after(5, correct=4, of=3), "correct is 4, allowed: 0 or more, at most 3"),
    ],
)
def test_bad_arguments_say_what_is_allowed(make, told):
    with pytest.raises(ValueError, match="allowed") as error:
        make()
    assert str(error.value) == told


def test_the_oracles_are_laws():
    assert sum(coins(6, Fraction(1, 3))) == sum(urn(6, correct=2, of=9)) == 1
