"""Paired gates: McNemar by SciPy and by tossing all coins, the published drops, and flips against measured noise."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from gates_oracles import HALF, coins
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from harness.verdict.gates import (
    NEVER_FOUND,
    QUIET_NOISE,
    FlipsLimit,
    Noise,
    flips_found,
    flips_limit,
    flips_p,
    paired_drop_found,
    paired_p,
    recorded_noise,
)

levels = st.floats(1e-6, 0.3)
noises = st.one_of(
    st.none(),
    st.integers(1, 7000).flatmap(
        lambda compared: st.builds(
            Noise, flips=st.integers(0, min(compared, 400)), compared=st.just(compared)
        )
    ),
)


@settings(max_examples=200, deadline=None)
@given(lost=st.integers(0, 400), gained=st.integers(0, 400))
def test_the_paired_p_is_scipys(lost, gained):
    if lost + gained == 0:
        assert paired_p(0, 0) == 1.0
        return
    expected = stats.binomtest(lost, lost + gained, 0.5, alternative="greater").pvalue
    assert paired_p(lost, gained) == pytest.approx(expected, rel=1e-10, abs=1e-290)


@pytest.mark.parametrize(
    ("lost", "gained"), [pair for pair in itertools.product(range(8), repeat=2) if sum(pair) < 12]
)
def test_the_paired_p_tosses_all_coins(lost, gained):
    law = coins(lost + gained, HALF)
    assert paired_p(lost, gained) == pytest.approx(float(sum(law[lost:])), rel=1e-13)


def test_the_published_pairs():
    assert paired_p(14, 2) == pytest.approx(2.1e-3, rel=0.01)
    assert paired_p(10, 0) == pytest.approx(9.8e-4, rel=0.01)
    assert paired_p(9, 0) > 1e-3


DROPS = {
    (200, 1e-3): (7.7, 10.0, 11.3, 13.1, 15.7, 17.5),
    (1319, 1e-3): (1.2, 2.3, 2.8, 3.6, 4.6, 5.3),
    (200, 5e-2): (4.5, 5.9, 6.7, 8.0, 9.8, 11.1),
    (1319, 5e-2): (0.7, 1.4, 1.8, 2.3, 3.1, 3.5),
}


@pytest.mark.parametrize(("setting", "drops"), DROPS.items())
def test_the_paired_drops(setting, drops):
    n, alpha = setting
    for discordance, drop in zip((0.0, 0.01, 0.02, 0.04, 0.08, 0.113), drops, strict=True):
        found = 100 * paired_drop_found(n, alpha=alpha, discordance=discordance)
        assert found == pytest.approx(drop, abs=0.051)


@pytest.mark.parametrize(("n", "discordance"), [(25, 0.0), (40, 0.1), (60, 0.05)])
def test_the_paired_drop_has_its_power_over_all_pairs_of_counts(n, discordance):
    """Summed over lost and gained by SciPy's trinomial, not over flips and their share as the code does."""
    drop = paired_drop_found(n, alpha=0.01, discordance=discordance)
    for shift, finds in ((1e-6, True), (-1e-4, False)):
        lost, gained = discordance / 2 + drop + shift, discordance / 2
        law = stats.multinomial(n, [lost, gained, 1 - lost - gained])
        power = sum(
            law.pmf([b, c, n - b - c])
            for b in range(n + 1)
            for c in range(n + 1 - b)
            if b + c and stats.binomtest(b, b + c, 0.5, alternative="greater").pvalue <= 0.01
        )
        assert bool(power >= 0.95) is finds


def test_too_few_pairs_find_nothing():
    assert paired_drop_found(0, alpha=1e-3, discordance=0.0) == NEVER_FOUND
    assert paired_drop_found(9, alpha=1e-3, discordance=0.0) == NEVER_FOUND
    assert paired_drop_found(10, alpha=1e-3, discordance=0.0) < 1.0
    assert paired_drop_found(200, alpha=1e-3, discordance=1.0) == NEVER_FOUND


@settings(max_examples=25, deadline=None)
@given(n=st.integers(10, 60), discordance=st.floats(0.0, 0.2), alpha=st.sampled_from([1e-4, 1e-3, 0.01, 0.1]))
def test_more_questions_and_less_noise_find_smaller_drops(n, discordance, alpha):
    drop = paired_drop_found(n, alpha=alpha, discordance=discordance)
    assert paired_drop_found(4 * n, alpha=alpha, discordance=discordance) <= drop + 2e-6
    assert paired_drop_found(n, alpha=min(0.9, 4 * alpha), discordance=discordance) <= drop + 2e-6


def share_of_tonight(flips: int, seen: int, *, n: int, compared: int) -> Fraction:
    """P(at least `flips` of all flips fell on tonight's questions), with each flip dropped on a question."""
    law = coins(flips + seen, Fraction(n, n + compared))
    return sum(law[flips:], Fraction(0))


@settings(max_examples=80, deadline=None)
@given(flips=st.integers(0, 5), seen=st.integers(0, 3), n=st.integers(6, 3000), compared=st.integers(6, 3000))
def test_the_flips_p_by_brute_force(flips, seen, n, compared):
    allowed = stats.binom.sf(flips - 1, n, QUIET_NOISE)
    measured = float(share_of_tonight(flips, seen, n=n, compared=compared))
    assert flips_p(flips, n, None) == pytest.approx(allowed, rel=1e-10)
    found = flips_p(flips, n, Noise(flips=seen, compared=compared))
    assert found == pytest.approx(max(allowed, measured), rel=1e-10)


def test_a_handful_of_flips_is_a_finding_where_nothing_was_measured():
    assert flips_limit(200, None, 1e-3) == FlipsLimit(fail_from=4, alpha=pytest.approx(7.6e-4, rel=0.01))
    assert flips_limit(1319, None, 1e-3).fail_from == 10
    assert flips_limit(128, None, 1e-3).fail_from == 4


@pytest.mark.parametrize(
    ("noise", "fail_from"),
    [
        (Noise(flips=0, compared=200), 10),  # one more run says little
        (Noise(flips=0, compared=500), 6),  # five recorded runs
        (Noise(flips=0, compared=1000), 4),
        (Noise(flips=0, compared=6595), 4),  # never less than an engine without noise is allowed
        (Noise(flips=1, compared=1000), 5),
        (Noise(flips=20, compared=1000), 14),
    ],
)
def test_measured_noise_moves_the_limit(noise, fail_from):
    assert flips_limit(200, noise, 1e-3).fail_from == fail_from


@settings(max_examples=200, deadline=None)
@given(n=st.integers(0, 1400), noise=noises, alpha=levels, data=st.data())
def test_a_flips_p_is_at_most_alpha_exactly_from_the_limit_on(n, noise, alpha, data):
    limit = flips_limit(n, noise, alpha)
    assert 0.0 <= limit.alpha <= alpha
    for flips in {data.draw(st.integers(0, n)), limit.fail_from - 1, limit.fail_from} & set(range(n + 1)):
        assert (flips_p(flips, n, noise) <= alpha) == (flips >= limit.fail_from)


@settings(max_examples=150, deadline=None)
@given(n=st.integers(1, 1400), noise=noises, alpha=levels)
def test_more_noise_never_makes_a_finding(n, noise, alpha):
    limit = flips_limit(n, noise, alpha).fail_from
    assert flips_limit(n, None, alpha).fail_from <= limit
    assert flips_limit(n, noise, alpha / 2).fail_from >= limit
    if noise is not None and noise.flips < noise.compared:
        noisier = Noise(flips=noise.flips + 1, compared=noise.compared)
        longer = Noise(flips=noise.flips, compared=noise.compared + 100)
        assert flips_limit(n, longer, alpha).fail_from <= limit <= flips_limit(n, noisier, alpha).fail_from


@settings(max_examples=100, deadline=None)
@given(n=st.integers(1, 1400), noise=noises, alpha=levels, power=st.floats(0.5, 0.99))
def test_the_flips_found_have_their_power_and_no_fewer_have(n, noise, alpha, power):
    found, limit = flips_found(n, noise, alpha=alpha, power=power), flips_limit(n, noise, alpha)
    if limit.fail_from > n:
        assert found == NEVER_FOUND
        return
    assert stats.binom.sf(limit.fail_from - 1, n, found) >= power - 1e-9
    assert stats.binom.sf(limit.fail_from - 1, n, max(0.0, found - 3e-6)) < power


def test_flips_of_no_or_one_question():
    assert flips_limit(0, None, 1e-3) == FlipsLimit(fail_from=1, alpha=0.0)
    assert flips_found(0, None, alpha=1e-3) == NEVER_FOUND
    assert flips_limit(1, None, 1e-3) == FlipsLimit(fail_from=2, alpha=0.0)
    assert flips_limit(1, None, 5e-3) == FlipsLimit(fail_from=1, alpha=pytest.approx(QUIET_NOISE))
    assert flips_p(0, 0, None) == flips_p(0, 5, Noise(flips=3, compared=4)) == 1.0


def test_recorded_noise_counts_the_rarer_answers():
    steady, slip, torn = (5, 0), (4, 1), (2, 3)
    assert recorded_noise([steady] * 198 + [slip, torn]) == Noise(flips=3, compared=500)
    assert recorded_noise([(0, 2), (1, 0), (0, 0)]) == Noise(flips=0, compared=1)
    assert recorded_noise([]) is recorded_noise([(1, 0), (0, 1)]) is None


def test_recorded_noise_is_the_flip_rate_of_two_runs():
    """Runs whose answers slip independently: what is recorded agrees with pairs of runs made for the purpose."""
    rng = np.random.default_rng(3)
    slips = rng.random((5, 200_000)) < 0.01
    wrong = slips.sum(axis=0)
    recorded = recorded_noise((5 - int(count), int(count)) for count in wrong)
    pair = rng.random((2, 500_000)) < 0.01
    assert recorded is not None
    assert recorded.share == pytest.approx(float(np.mean(pair[0] != pair[1])), rel=0.05)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: Noise(flips=2, compared=1), "flips is 2, allowed: 0 or more, at most 1"),
        (lambda: Noise(flips=0, compared=0), "compared is 0, allowed: 1 or more"),
        (lambda: paired_p(-1, 2), "lost is -1, allowed: 0 or more"),
        (lambda: paired_p(1, -2), "gained is -2, allowed: 0 or more"),
        (lambda: flips_p(6, 5, None), "flips is 6, allowed: 0 or more, at most 5"),
        (lambda: flips_limit(5, None, 0.0), "alpha is 0.0, allowed: above 0 and below 1"),
        (lambda: flips_found(5, None, alpha=1e-3, power=95), "power is 95, allowed: above 0 and below 1"),
        (
            lambda: paired_drop_found(5, alpha=1e-3, discordance=-0.1),
            "discordance is -0.1, allowed: 0 to 1",
        ),
    ],
)
def test_bad_arguments_say_what_is_allowed(call, told):
    with pytest.raises(ValueError, match="allowed") as error:
        call()
    assert str(error.value) == told
