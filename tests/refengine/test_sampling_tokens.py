"""Sampling: greedy, seeded draws that no neighbour in the batch can change, reported log-probabilities."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from torch import Tensor

from harness.errors import UsageError
from harness.refengine.sampling import SamplingSpec, sample, score

VOCAB = 11


def logits(rows: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 2


def test_temperature_zero_takes_the_likeliest() -> None:
    rows = logits(5)
    found = sample(rows, [SamplingSpec()] * 5)
    assert [scored.token for scored in found] == [
        max(range(VOCAB), key=row.__getitem__) for row in rows.tolist()
    ]


def test_logprobs_are_the_models_own_whatever_the_temperature() -> None:
    rows = logits(3)
    found = sample(rows, [SamplingSpec(temperature=t, seed=1) for t in (0.0, 0.5, 3.0)])
    for row, scored in zip(rows.tolist(), found, strict=True):
        total = math.fsum(math.exp(value) for value in row)
        assert scored.logprob == pytest.approx(row[scored.token] - math.log(total), abs=1e-5)


def test_a_draw_does_not_depend_on_the_batch() -> None:
    rows = logits(40)
    specs = [SamplingSpec(temperature=1.3, seed=n % 7, drawn=n) for n in range(40)]
    together = [scored.token for scored in sample(rows, specs)]
    alone = [sample(rows[n : n + 1], [specs[n]])[0].token for n in range(40)]
    backwards = sample(rows.flip(0), specs[::-1])[::-1]
    assert together == alone == [scored.token for scored in backwards]


def test_draws_follow_the_distribution() -> None:
    """Expected counts within five standard deviations, for every token, at two temperatures."""
    row, n = logits(1, seed=4), 1500
    for temperature in (0.7, 2.0):
        specs = [SamplingSpec(temperature=temperature, seed=17, drawn=drawn) for drawn in range(n)]
        counts = Counter(scored.token for scored in sample(row.expand(n, -1), specs))
        weights = [math.exp(value / temperature) for value in row[0].tolist()]
        for token, weight in enumerate(weights):
            share = weight / sum(weights)
            assert abs(counts[token] - n * share) <= 5 * math.sqrt(n * share * (1 - share)) + 1


def test_seeds_and_steps_draw_differently() -> None:
    row = torch.zeros(1, 200)
    specs = [SamplingSpec(temperature=1.0, seed=seed, drawn=drawn) for seed in range(5) for drawn in range(5)]
    assert len({scored.token for scored in sample(row.expand(25, -1), specs)}) > 15


def test_an_impossible_token_is_never_drawn() -> None:
    row = torch.full((1, VOCAB), -torch.inf)
    row[0, 3] = row[0, 6] = 0.0
    specs = [SamplingSpec(temperature=1.0, seed=s) for s in range(200)]
    assert {scored.token for scored in sample(row.expand(200, -1), specs)} == {3, 6}


def test_top_logprobs_come_likeliest_first_and_as_many_as_asked() -> None:
    rows = logits(3)
    found = sample(rows, [SamplingSpec(top=top) for top in (0, 2, 99)])
    assert [len(scored.top) for scored in found] == [0, 2, VOCAB]
    assert found[1].top[0] == (pytest.approx(found[1].logprob), found[1].token)
    everything = found[2].top
    assert sorted(everything, reverse=True) == list(everything)
    assert math.fsum(math.exp(logprob) for logprob, _ in everything) == pytest.approx(1.0, abs=1e-5)


def test_scores_of_given_tokens() -> None:
    rows = logits(2)
    found = score(rows, [4, 0], top=1)
    for row, scored, token in zip(rows.double().tolist(), found, (4, 0), strict=True):
        total = math.log(math.fsum(math.exp(value) for value in row))
        assert (scored.token, scored.logprob) == (token, pytest.approx(row[token] - total, abs=1e-5))
        assert scored.top[0][0] == pytest.approx(max(row) - total, abs=1e-5)


def test_an_empty_batch_has_no_tokens() -> None:
    assert sample(logits(0), []) == []


@pytest.mark.parametrize("temperature", [-0.1, math.inf, math.nan])
def test_bad_temperatures_are_refused(temperature: float) -> None:
    with pytest.raises(UsageError, match="temperature"):
        SamplingSpec(temperature=temperature)


def test_a_negative_top_is_refused() -> None:
    with pytest.raises(UsageError, match="-1"):
        SamplingSpec(top=-1)
