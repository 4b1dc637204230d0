"""The decode, merge and extend kernels against attention in fp64: lengths, shards, splits, strides, types, scores."""

from __future__ import annotations

import math

import pytest
import torch
from dcp_decode_cases import (
    DTYPES,
    LENGTHS,
    SCALE,
    Case,
    Packed,
    Shape,
    agree,
    drawn_lens,
    make_case,
    make_packed,
    spread,
)
from torch import Tensor

from harness.refengine.triton_kernels import calls

pytestmark = pytest.mark.usefixtures("planted_faults")

# Drawn cases of each property; the interpreter takes a tenth of a second for one.
DRAWS = range(8)
# Sequences that end in a kernel's second and third block.
BLOCKS = (65, 130)
# The interpreter's numpy tells of every NaN that it computes.
SPOILS = pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
HEADS = ("sequence", "head")
ELEMENTS = (*HEADS, "element")


def decode(case: Case, *, splits: int | None) -> tuple[Tensor, Tensor]:
    return calls.local_attention(
        case.q, case.kv, case.table, case.lens, scale=SCALE, page_size=case.page_size, splits=splits
    )


def judge(case: Case, found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> None:
    """Equal within what rounding explains; where nothing is attended to, equal to (0, -inf) itself."""
    (out, lse), (right, right_lse) = found, expected
    agree("lse", lse, right_lse, dims=HEADS, atol=case.slack, rtol=1e-6)
    agree("out", out, right, dims=ELEMENTS, atol=case.slack, rtol=1e-5)
    nothing = out[lse == -math.inf]
    agree("out of nothing", nothing, torch.zeros(nothing.shape), dims=ELEMENTS[1:], atol=0, rtol=0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lens", [(0,), (1, 0, 33), *map(drawn_lens, DRAWS)], ids=str)
def test_ragged_lengths_and_empty_sequences(device: str, lens: tuple[int, ...], dtype: str) -> None:
    case = make_case(Shape(lens=lens, dtype=dtype), device)
    judge(case, decode(case, splits=1 + sum(lens) % 4), case.expected())


@pytest.mark.parametrize(("kv_heads", "group"), [(1, 1), (3, 1), (1, 5), (2, 8), (1, 16), (1, 20)])
def test_group_sizes(device: str, kv_heads: int, group: int) -> None:
    case = make_case(Shape(lens=(19, 3), kv_heads=kv_heads, group=group), device)
    judge(case, decode(case, splits=2), case.expected())


@pytest.mark.parametrize("head_dim", [2, 16, 24, 64, 128])
def test_head_sizes(device: str, head_dim: int) -> None:
    case = make_case(Shape(lens=(21,), head_dim=head_dim), device)
    judge(case, decode(case, splits=2), case.expected())


@pytest.mark.parametrize("page_size", [1, 3, 16, 64])
def test_page_sizes(device: str, page_size: int) -> None:
    case = make_case(Shape(lens=(65, 2, 16), page_size=page_size, seed=page_size), device)
    judge(case, decode(case, splits=2), case.expected())


@pytest.mark.parametrize("peak", [0.0, 1.0, 10.0, 100.0])
def test_flat_and_peaked_scores(device: str, peak: float) -> None:
    """Without a difference between tokens, and with all weight on one, whose score may be far from 0."""
    case = make_case(Shape(lens=(40, 7), peak=peak), device)
    judge(case, decode(case, splits=3), case.expected())


@pytest.mark.parametrize("splits", [None, 1, 2, 3, 7])
def test_the_number_of_splits_changes_nothing(device: str, splits: int | None) -> None:
    """With 7, most splits of a sequence are empty."""
    case = make_case(Shape(lens=(50, 1, 0, 17), seed=4), device)
    judge(case, decode(case, splits=splits), case.expected())


def test_an_empty_split_is_the_identity(device: str) -> None:
    """One token in four splits: the first is the result, the others are (0, -inf)."""
    case = make_case(Shape(lens=(1,)), device)
    parts = torch.full((4, 1, 4, 16), torch.nan, device=device)
    lses = torch.full((4, 1, 4), torch.nan, device=device)
    calls.decode_splits(
        *(case.q, case.kv, case.table, case.lens, parts, lses), scale=SCALE, page_size=case.page_size
    )
    judge(case, (parts[0], lses[0]), case.expected())
    assert not parts[1:].any()
    assert bool((lses[1:] == -math.inf).all())


def test_lses_are_natural_logarithms(device: str) -> None:
    """Sixteen tokens with score 0: the LSE is ln 16, which would be 4 to base 2."""
    assert math.e == calls.LSE_BASE
    case = make_case(Shape(lens=(16,), peak=0.0), device)
    _, lse = decode(case, splits=2)
    agree("lse", lse, torch.full((1, 4), math.log(16)), dims=HEADS, atol=1e-5, rtol=0)


@SPOILS
@pytest.mark.parametrize("splits", [1, 2, 3])
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf], ids=str)
@pytest.mark.parametrize("token", [0, 20, 32], ids=["first", "middle", "last"])
def test_a_score_that_is_not_finite_spoils_its_sequence_alone(
    device: str, token: int, wrong: float, splits: int
) -> None:
    """Out and LSE are NaN however often it is cut: a shard that was attended to never passes for an empty one."""
    case = make_case(Shape(lens=(33, 5), kv_heads=1, head_dim=1), device)
    page = case.table[0, token // case.page_size]
    case.kv[page * case.page_size + token % case.page_size, 0] = wrong
    out, lse = decode(case, splits=splits)
    right, right_lse = case.expected()
    right[0] = right_lse[0] = math.nan
    judge(case, (out, lse), (right, right_lse))


@SPOILS
@pytest.mark.parametrize("splits", [1, 2, 3])
def test_a_value_that_is_nan_spoils_the_output_and_not_the_lse(device: str, splits: int) -> None:
    case = make_case(Shape(lens=(33, 5), kv_heads=1, head_dim=1), device)
    case.kv[case.table[0, 0] * case.page_size, 1] = math.nan
    right, right_lse = case.expected()
    right[0] = math.nan
    judge(case, decode(case, splits=splits), (right, right_lse))


@pytest.mark.parametrize("gap", [0, 2])
@pytest.mark.parametrize("turned", [False, True], ids=["rows", "turned"])
def test_strides_are_honoured(device: str, gap: int, turned: bool) -> None:
    """Queries, pool, page table, lengths and results in memory of another order, with gaps that are NaN."""
    case = make_case(Shape(lens=(18, 5), kv_heads=2, group=3), device)
    order = range(4)[::-1] if turned else range(4)
    three, two = ([dim for dim in order if dim < n] for n in (3, 2))
    guard = torch.full((2, 6, 17 + gap), 7.0, device=device)
    out, lse = guard[..., :16], guard[..., 16]
    found = calls.local_attention(
        spread(case.q, three, gap),
        spread(case.kv, list(order), gap),
        spread(case.table, two, gap),
        spread(case.lens, [0], gap),
        scale=SCALE,
        page_size=case.page_size,
        splits=2,
        out=out,
        lse=lse,
    )
    judge(case, found, case.expected())
    judge(case, (out, lse), case.expected())
    assert bool((guard[..., 17:] == 7.0).all())


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("lens", [(1,), (3, 4, 65), *map(drawn_lens, DRAWS)], ids=str)
def test_shards_of_ranks_merge_to_the_whole(device: str, lens: tuple[int, ...], ranks: int) -> None:
    """Tokens dealt in turns, as ranks of a DCP group hold them; short sequences leave shards empty."""
    whole = make_case(Shape(lens=lens), device)
    shards = []
    for rank in range(ranks):
        held = [torch.tensor(range(rank, length, ranks), dtype=torch.int64) for length in lens]
        shard = make_shard(whole, held, device)
        shards.append(decode(shard, splits=2))
        judge(whole, shards[-1], whole.expected(held))
    # As they come out of an all-to-all: outputs packed with their LSEs.
    packed = torch.stack([torch.cat([out, lse[..., None]], dim=-1) for out, lse in shards])
    judge(whole, calls.merge_parts(packed[..., :-1], packed[..., -1]), whole.expected())


def make_shard(whole: Case, held: list[Tensor], device: str) -> Case:
    """The case of one rank: the tokens that it holds, written to a pool of its own."""
    kv = torch.full_like(whole.kv, torch.nan)
    table = torch.zeros_like(whole.table)
    page = 1
    for b, tokens in enumerate(held):
        for n, token in enumerate(tokens.tolist()):
            if n % whole.page_size == 0:
                table[b, n // whole.page_size] = page
                page += 1
            row = int(table[b, n // whole.page_size]) * whole.page_size + n % whole.page_size
            kv[row] = torch.stack([whole.k[b][:, token], whole.v[b][:, token]]).to(device)
    lens = torch.tensor([len(tokens) for tokens in held], device=device)
    return Case(q=whole.q, kv=kv, table=table, lens=lens, page_size=whole.page_size, k=[], v=[])


@pytest.mark.parametrize("heads", [1, 5, 33])
def test_a_merge_weights_by_lse_and_reads_no_empty_part(device: str, heads: int) -> None:
    """Denominators 2 and 8: a fifth of 10 and four fifths of 20. What an empty part left behind is not looked at."""
    parts = torch.tensor([10.0, 20.0, torch.nan], device=device).view(3, 1, 1, 1).repeat(1, 2, heads, 3)
    lses = (
        torch.tensor([math.log(2), math.log(8), -math.inf], device=device).view(3, 1, 1).repeat(1, 2, heads)
    )
    out, lse = calls.merge_parts(parts, lses)
    agree("out", out, torch.full((2, heads, 3), 18.0), dims=ELEMENTS, atol=1e-4, rtol=0)
    agree("lse", lse, torch.full((2, heads), math.log(10)), dims=HEADS, atol=1e-5, rtol=0)


@SPOILS
@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("wrong", [math.nan, math.inf], ids=str)
def test_a_part_with_an_lse_that_is_none_spoils_the_merge(device: str, wrong: float, place: int) -> None:
    """Wherever it stands, beside parts that are full and empty; the other head is merged as ever."""
    parts = torch.ones(3, 1, 2, 3, device=device)
    lses = torch.tensor([0.0, -math.inf, 0.0], device=device).view(3, 1, 1).repeat(1, 1, 2)
    lses[place, 0, 1] = wrong
    out, lse = calls.merge_parts(parts, lses)
    right = torch.tensor([1.0, math.nan])
    agree("lse", lse, right.log() + torch.tensor([[math.log(2), 0.0]]), dims=HEADS, atol=1e-5, rtol=0)
    agree("out", out, right[None, :, None].expand(1, 2, 3), dims=ELEMENTS, atol=1e-5, rtol=0)


def test_a_merge_of_nothing_is_nothing(device: str) -> None:
    out, lse = calls.merge_parts(
        torch.full((4, 1, 2, 16), torch.nan, device=device), torch.full((4, 1, 2), -math.inf, device=device)
    )
    assert not out.any()
    assert bool((lse == -math.inf).all())


@pytest.mark.parametrize("large", [3e4, -3e4])
def test_a_merge_survives_scores_far_from_zero(device: str, large: float) -> None:
    parts = (
        torch.ones(3, 1, 2, 16, device=device)
        * torch.tensor([1.0, 2.0, 6.0], device=device)[:, None, None, None]
    )
    out, _ = calls.merge_parts(parts, torch.full((3, 1, 2), large, device=device))
    agree("out", out, torch.full((1, 2, 16), 3.0), dims=ELEMENTS, atol=1e-4, rtol=0)


def extend(packed: Packed, *, shuffled: bool = False, gap: int = 0) -> Tensor:
    """With `shuffled`, every tensor in memory of its own order, so that no two have a stride in common."""
    q, new, prefix = packed.q, packed.new, packed.prefix
    if shuffled:
        q = spread(q, [2, 0, 1], gap)
        new = spread(new, [3, 1, 0, 2], gap)
        prefix = spread(prefix, [1, 3, 2, 0], gap)
    return calls.extend_attention(
        *(q, new, prefix, packed.order, packed.new_ends, packed.prefix_ends, packed.kv_of_head),
        longest=max(packed.counts),
        scale=SCALE,
    )


def judge_extended(packed: Packed, found: Tensor) -> None:
    """The first, the middle and the last new token of each sequence, and those on both sides of a block's end."""
    for sequence, token in packed.told():
        name = f"sequence {sequence}, new token {token}: out"
        here, right = found[packed.first(sequence) + token], packed.expected(sequence, token)
        agree(name, here, right, dims=ELEMENTS[1:], atol=packed.slack, rtol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", DRAWS)
def test_extend_is_causal_and_sees_its_own_prefix(device: str, seed: int, dtype: str) -> None:
    """Prefix tokens lie shuffled among rows that are nobody's, as a gather leaves them; new ones follow in order."""
    counts = tuple(max(1, count) for count in reversed(drawn_lens(seed)))
    packed = make_packed(drawn_lens(seed), counts, device, dtype=dtype, seed=seed)
    judge_extended(packed, extend(packed))


@pytest.mark.parametrize("new", BLOCKS)
@pytest.mark.parametrize("prefix", BLOCKS)
def test_extend_sees_every_block_of_prefix_and_new_tokens(device: str, prefix: int, new: int) -> None:
    """Beside a short sequence, whose grid is as long."""
    packed = make_packed((3, prefix), (2, new), device)
    judge_extended(packed, extend(packed))


@pytest.mark.parametrize("gap", [0, 2])
def test_extend_honours_strides(device: str, gap: int) -> None:
    packed = make_packed((18, 5), (7, 3), device)
    judge_extended(packed, extend(packed, shuffled=True, gap=gap))


def test_draws_differ_and_reach_several_blocks() -> None:
    """What the drawn cases are worth."""
    drawn = [drawn_lens(seed) for seed in DRAWS]
    assert len(set(drawn)) == len(drawn)
    for lengths in LENGTHS:
        assert sum(length in lengths for lens in drawn for length in lens) >= 2, lengths
