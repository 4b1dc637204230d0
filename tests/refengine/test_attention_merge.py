"""Partial attention and its merge against attention over all tokens at once, in fp64, head by head."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from harness.refengine.attention import extend_attention, local_attention, lse_weights, merge_a2a, merge_ag_rs
from harness.refengine.comm import Comms, ThreadWorld
from harness.refengine.config import EngineConfig

HEADS, KV_HEADS, SIZE = 4, 2, 8


def attention_by_hand(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """One query over all its tokens: q [H, D], k and v [K, L, D] -> out [H, D], lse [H] in fp64."""
    out = torch.zeros(HEADS, SIZE, dtype=torch.float64)
    lse = torch.full((HEADS,), -math.inf, dtype=torch.float64)
    for head in range(HEADS):
        shared = head // (HEADS // KV_HEADS)
        scores = [float(q[head].double() @ key.double()) for key in k[shared]]
        if scores:
            total = math.fsum(math.exp(score - max(scores)) for score in scores)
            lse[head] = max(scores) + math.log(total)
            for score, value in zip(scores, v[shared].double(), strict=True):
                out[head] += math.exp(score - max(scores)) / total * value
    return out, lse


def drawn(seed: int, *lengths: int, peak: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Queries [B, H, D], keys and values [B, K, max length, D] padded with large finite values."""
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(len(lengths), HEADS, SIZE, generator=generator) * peak
    k, v = torch.randn(2, len(lengths), KV_HEADS, max(1, *lengths), SIZE, generator=generator)
    for row, length in enumerate(lengths):
        k[row, :, length:] = v[row, :, length:] = 1e4
    return q, k, v


def padding(width: int, lengths: list[int]) -> Tensor:
    return torch.tensor([[place >= length for place in range(width)] for length in lengths])


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 9), min_size=2, max_size=5), st.sampled_from([0.1, 1.0, 20.0]), st.integers(0, 99)
)
def test_local_attention_equals_attention_by_hand(lengths: list[int], peak: float, seed: int) -> None:
    q, k, v = drawn(seed, *lengths, peak=peak)
    out, lse = local_attention(q, k, v, padding(k.shape[2], lengths), scale=1.0)
    for row, length in enumerate(lengths):
        expected_out, expected_lse = attention_by_hand(q[row], k[row, :, :length], v[row, :, :length])
        torch.testing.assert_close(out[row].double(), expected_out, atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(lse[row].double(), expected_lse, atol=2e-5, rtol=1e-5)


def test_a_shard_without_tokens_is_zero_with_lse_minus_infinity() -> None:
    q, k, v = drawn(1, 0, 3)
    out, lse = local_attention(q, k, v, padding(3, [0, 3]), scale=1.0)
    assert torch.equal(out[0], torch.zeros(HEADS, SIZE))
    assert torch.equal(lse[0], torch.full((HEADS,), -torch.inf))
    assert bool(lse[1].isfinite().all())


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from([2, 4]),
    st.lists(st.integers(1, 12), min_size=2, max_size=4),
    st.sampled_from([0.1, 1.0, 20.0]),
    st.integers(0, 99),
)
@pytest.mark.parametrize("merge", [merge_ag_rs, merge_a2a])
def test_merged_shards_equal_attention_over_all_tokens(
    merge: object, size: int, lengths: list[int], peak: float, seed: int
) -> None:
    """Tokens are dealt to ranks at random, so shards are ragged and often empty."""
    assert callable(merge)
    q, k, v = drawn(seed, *lengths, peak=peak)
    holder = torch.randint(0, size, (len(lengths), k.shape[2]), generator=torch.Generator().manual_seed(seed))

    def rank_main(rank: int, comms: Comms) -> Tensor:
        foreign = padding(k.shape[2], lengths) | (holder != rank)
        merged: Tensor = merge(*local_attention(q, k, v, foreign, scale=1.0), comms.dcp)
        return merged

    world = ThreadWorld(EngineConfig(tp=size, dcp=size))
    merged = torch.cat(world.run(rank_main), dim=1)
    for row, length in enumerate(lengths):
        expected, _ = attention_by_hand(q[row], k[row, :, :length], v[row, :, :length])
        torch.testing.assert_close(merged[row].double(), expected, atol=3e-5, rtol=1e-4)


def test_each_rank_keeps_its_own_heads() -> None:
    q, k, v = drawn(5, 7)
    world = ThreadWorld(EngineConfig(tp=4, dcp=4))
    expected, _ = attention_by_hand(q[0], k[0], v[0])

    def rank_main(rank: int, comms: Comms) -> Tensor:
        # Rank 2 holds everything: the others are the identity of the merge.
        foreign = torch.full((1, 7), rank != 2)
        return merge_ag_rs(*local_attention(q, k, v, foreign, scale=1.0), comms.dcp)

    for rank, merged in enumerate(world.run(rank_main)):
        assert merged.shape == (1, 1, SIZE)
        torch.testing.assert_close(merged[0, 0].double(), expected[rank], atol=1e-5, rtol=1e-4)


def test_weights_are_shares_of_a_softmax_with_base_e() -> None:
    """Two shards whose denominators are 2 and 8: a fifth and four fifths, the empty one nothing."""
    lse = torch.tensor([math.log(2.0), math.log(8.0), -math.inf]).view(3, 1, 1)
    torch.testing.assert_close(lse_weights(lse).flatten(), torch.tensor([0.2, 0.8, 0.0]))


def test_weights_of_nothing_are_zero_and_not_nan() -> None:
    assert torch.equal(lse_weights(torch.full((4, 2, 3), -torch.inf)), torch.zeros(4, 2, 3))


@pytest.mark.parametrize("large", [80.0, -80.0, 3e4])
def test_weights_survive_scores_far_from_zero(large: float) -> None:
    weights = lse_weights(torch.full((4, 1, 1), large))
    torch.testing.assert_close(weights, torch.full((4, 1, 1), 0.25))


def test_extend_sees_only_what_is_not_hidden() -> None:
    q, k, v = drawn(9, 6)
    keys = k[0].repeat_interleave(HEADS // KV_HEADS, dim=0).transpose(0, 1)
    values = v[0].repeat_interleave(HEADS // KV_HEADS, dim=0).transpose(0, 1)
    hidden = torch.tensor([[False, True, False, True, True, False]])
    out = extend_attention(q, keys, values, hidden, scale=1.0)
    seen = ~hidden[0]
    expected, _ = attention_by_hand(q[0], k[0, :, seen], v[0, :, seen])
    torch.testing.assert_close(out[0].double(), expected, atol=1e-5, rtol=1e-4)
