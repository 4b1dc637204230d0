"""Gates by brute force, for tests: every outcome enumerated, every probability a fraction, no formula shared."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from fractions import Fraction

HALF = Fraction(1, 2)


def coins(n: int, p: Fraction) -> list[Fraction]:
    """P(k right of n), from all 2^n outcomes of n independent answers."""
    law = [Fraction(0)] * (n + 1)
    for outcome in itertools.product((True, False), repeat=n):
        chance = Fraction(1)
        for right in outcome:
            chance *= p if right else 1 - p
        law[sum(outcome)] += chance
    return law


def urn(n: int, *, correct: int, of: int) -> list[Fraction]:
    """P(k right of n) by Polya's urn: it holds what the baseline showed and half a ball of each kind, and every
    answer drawn adds a ball of its kind. All 2^n orders of drawing are played."""
    law = [Fraction(0)] * (n + 1)
    for outcome in itertools.product((True, False), repeat=n):
        balls = {True: correct + HALF, False: of - correct + HALF}
        chance = Fraction(1)
        for right in outcome:
            chance *= balls[right] / sum(balls.values())
            balls[right] += 1
        law[sum(outcome)] += chance
    return law


def largest_limit(law: list[Fraction], alpha: float) -> int:
    """The largest c that a score of this law falls below with probability alpha at most."""
    return max(c for c in range(len(law) + 1) if sum(law[:c], Fraction(0)) <= Fraction(alpha))


def closed_testing(p_values: Mapping[str, float], alpha: float) -> dict[str, bool]:
    """Holm by its definition: a gate is a finding if every family of gates around it has one by Bonferroni."""
    names = list(p_values)
    families = [family for size in range(1, len(names) + 1) for family in itertools.combinations(names, size)]
    return {
        name: all(
            min(p_values[member] for member in family) <= alpha / len(family)
            for family in families
            if name in family
        )
        for name in names
    }


def all_endings(n: int, *, right: int, wrong: int, fails: Callable[[int], bool]) -> set[bool]:
    """Every verdict that the questions still to be asked may lead to."""
    return {fails(right + more) for more in range(n - right - wrong + 1)}
