"""Lengths of decode and verify steps against a deal of cards: every token is dealt to a rank, and counted.

Upstream's test of TokenSpeed MLA looks at one rank of one topology; this one at all ranks of several, several widths of
drafts, batches with padding, and a graph's buffers over several replays. `step_target` is what is judged: our own
arithmetic, or with `--target sglang` the package's MLA backend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest
from functions_table import check_functions, disagreements, row_of

from harness.errors import TopologyError
from harness.topology import KVLayout, Step
from harness.topology.targets.step import STEP_FUNCTIONS, StepFunction, StepTarget, named

TABLE = Path(__file__).with_name("_mla_metadata_functions.yaml")
LAYOUTS = [
    KVLayout(dcp_size=dcp, page_size=64, interleave=interleave)
    for dcp in (2, 3, 4, 8)
    for interleave in (1, 4)
]
DRAFTS = (1, 4, 8)
# Around the turns and rounds of every layout, with sequences that leave ranks without a token.
LENGTHS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 1023, 1024, 1025)
# Batches of one graph: full, short, empty, growing again. What an earlier one left must not show.
ROWS = 6
# Sequences that a batch is filled up with: one token, that of the reserved page; a second would be read from nowhere.
PADDING = 1
BATCHES = ([1025, 64, 9, 33, 8, 17], [3, 2], [], [5, 16, 31, 1], [1024, 1023, 65, 7, 15, 4])


def each_layout(function: StepFunction) -> pytest.MarkDecorator:
    """Once per layout; targets that lack the function for it leave the test out."""
    marked = [
        pytest.param(
            layout,
            id=f"dcp{layout.dcp_size}-interleave{layout.interleave}",
            marks=pytest.mark.step_functions(named(function, layout.interleave)),
        )
        for layout in LAYOUTS
    ]
    return pytest.mark.parametrize("layout", marked)


def turns(layout: KVLayout) -> Iterator[int]:
    """The rank whose turn it is, for one token after the other."""
    while True:
        for rank in range(layout.dcp_size):
            for _ in range(layout.interleave):
                yield rank


def dealt(layout: KVLayout, length: int, rank: int) -> int:
    """Tokens in the hand of that rank after so many were dealt."""
    return sum(1 for turn in islice(turns(layout), length) if turn == rank)


def whole(lengths: list[int], step: Step, draft_tokens: int) -> list[int]:
    """Each sequence with the tokens that the step puts behind it, one by one: a decode step puts none."""
    proposed = list(range(draft_tokens)) if step is Step.VERIFY else []
    return [len([*range(length), *proposed]) for length in lengths]


@pytest.mark.parametrize("draft_tokens", DRAFTS)
@pytest.mark.parametrize("step", Step)
@each_layout(StepFunction.LENGTHS)
def test_lengths_are_as_dealt(
    layout: KVLayout, step: Step, draft_tokens: int, step_target: StepTarget
) -> None:
    lengths = list(LENGTHS)
    for rank in range(layout.dcp_size):
        found = step_target.lengths(layout, rank, lengths, step=step, draft_tokens=draft_tokens)
        local = [dealt(layout, length, rank) for length in whole(lengths, step, draft_tokens)]
        assert found.global_lens == whole(lengths, step, draft_tokens), rank
        assert found.local_lens == local, rank
        assert found.paged == local, rank
        assert found.longest == max(local), rank


@pytest.mark.parametrize("step", Step)
@each_layout(StepFunction.LENGTHS)
def test_a_rank_without_a_token_is_given_a_bound_above_zero(
    layout: KVLayout, step: Step, step_target: StepTarget
) -> None:
    """A sequence of one token, and with a verify step's one more: other ranks than the first have nothing or one."""
    for rank in range(layout.dcp_size):
        found = step_target.lengths(layout, rank, [1], step=step, draft_tokens=1)
        hand = dealt(layout, 2 if step is Step.VERIFY else 1, rank)
        assert found.local_lens == [hand], rank
        assert found.longest == (hand or 1), rank


@pytest.mark.parametrize("step", Step)
@each_layout(StepFunction.LENGTHS)
def test_all_ranks_together_hold_every_token_once(
    layout: KVLayout, step: Step, step_target: StepTarget
) -> None:
    lengths = list(LENGTHS)
    ranks = [
        step_target.lengths(layout, rank, lengths, step=step, draft_tokens=3).local_lens
        for rank in range(layout.dcp_size)
    ]
    assert [sum(hands) for hands in zip(*ranks, strict=True)] == whole(lengths, step, 3)


def padded(batch: list[int]) -> list[int]:
    return [*batch, *[PADDING] * (ROWS - len(batch))]


@pytest.mark.parametrize("draft_tokens", DRAFTS)
@pytest.mark.parametrize("step", Step)
@each_layout(StepFunction.PAGED)
def test_a_replays_page_table_is_made_for_local_lengths(
    layout: KVLayout, step: Step, draft_tokens: int, step_target: StepTarget
) -> None:
    for rank in range(layout.dcp_size):
        replays = step_target.replays(layout, rank, BATCHES, rows=ROWS, step=step, draft_tokens=draft_tokens)
        assert [replay.paged for replay in replays] == [
            [dealt(layout, length, rank) for length in whole(padded(batch), step, draft_tokens)]
            for batch in BATCHES
        ], rank


def check_buffers(target: StepTarget, layout: KVLayout, step: Step, draft_tokens: int) -> None:
    """The captured memory itself is written over before each replay, its padding rows too."""
    for rank in range(layout.dcp_size):
        replays = target.replays(layout, rank, BATCHES, rows=ROWS, step=step, draft_tokens=draft_tokens)
        for batch, replay in zip(BATCHES, replays, strict=True):
            lengths = whole(padded(batch), step, draft_tokens)
            assert replay.global_lens == lengths, (rank, batch)
            assert replay.local_lens == [dealt(layout, length, rank) for length in lengths], (rank, batch)


@pytest.mark.parametrize("draft_tokens", DRAFTS)
@each_layout(StepFunction.VERIFY_BUFFERS)
def test_verify_lengths_are_written_over_in_place(
    layout: KVLayout, draft_tokens: int, step_target: StepTarget
) -> None:
    check_buffers(step_target, layout, Step.VERIFY, draft_tokens)


@pytest.mark.parametrize("draft_tokens", DRAFTS)
@each_layout(StepFunction.DECODE_BUFFERS)
def test_decode_lengths_are_written_over_in_place(
    layout: KVLayout, draft_tokens: int, step_target: StepTarget
) -> None:
    check_buffers(step_target, layout, Step.DECODE, draft_tokens)


def seen(layout: KVLayout, rank: int, length: int, queries: int) -> list[int]:
    """Of a sequence of `length` tokens and so many query tokens behind them: what is dealt up to each one."""
    before: list[int] = list(range(length))
    counts = []
    for query in range(queries):
        before.append(query)
        counts.append(dealt(layout, len(before), rank))
    return counts


@pytest.mark.parametrize("draft_tokens", DRAFTS)
@pytest.mark.parametrize("step", Step)
@each_layout(StepFunction.VISIBLE_BUFFERS)
def test_what_query_tokens_see_is_written_over_in_place(
    layout: KVLayout, step: Step, draft_tokens: int, step_target: StepTarget
) -> None:
    """Row by row; the one query token of a decode step is counted in its sequence's length already."""
    for rank in range(layout.dcp_size):
        replays = step_target.replays(layout, rank, BATCHES, rows=ROWS, step=step, draft_tokens=draft_tokens)
        for batch, replay in zip(BATCHES, replays, strict=True):
            expected: list[int] = []
            for length in padded(batch):
                queries, before = (draft_tokens, length) if step is Step.VERIFY else (1, length - 1)
                expected += seen(layout, rank, before, queries)
            assert replay.visible == expected, (rank, batch)


@pytest.mark.parametrize("step", Step)
@each_layout(StepFunction.OVERFULL)
def test_more_sequences_than_rows_are_refused(layout: KVLayout, step: Step, step_target: StepTarget) -> None:
    with pytest.raises(TopologyError, match=r"\b7 sequences do not fit into buffers of 6 rows"):
        step_target.replays(layout, 0, [[5] * 6, [5] * 7], rows=6, step=step, draft_tokens=2)


@pytest.mark.parametrize("draft_tokens", DRAFTS)
@each_layout(StepFunction.VISIBLE)
def test_each_query_token_sees_up_to_itself(
    layout: KVLayout, draft_tokens: int, step_target: StepTarget
) -> None:
    lengths = [0, *LENGTHS]
    for rank in range(layout.dcp_size):
        found = step_target.visible(layout, rank, lengths, draft_tokens=draft_tokens)
        expected = [seen(layout, rank, length, draft_tokens) for length in lengths]
        assert found == expected, rank


@pytest.mark.step_functions(named(StepFunction.LENGTHS))
def test_a_point_counted_by_hand(step_target: StepTarget) -> None:
    """Prefixes of 10, 20 and 30, eight draft tokens, rank 2 of 4: it has positions 2, 6, 10, 14, 18, 22, 26, 30, 34."""
    layout = KVLayout(dcp_size=4, page_size=64)
    verify = step_target.lengths(layout, 2, [10, 20, 30], step=Step.VERIFY, draft_tokens=8)
    assert (verify.global_lens, verify.local_lens, verify.longest) == ([18, 28, 38], [4, 7, 9], 9)
    decode = step_target.lengths(layout, 2, [10, 20, 30], step=Step.DECODE, draft_tokens=8)
    assert (decode.global_lens, decode.local_lens, decode.longest) == ([10, 20, 30], [2, 5, 7], 7)


def problems(target: StepTarget, checked: frozenset[str]) -> list[str]:
    """What the table, the target and the collected tests do not agree about."""
    row = row_of(TABLE, target.name)
    if row is None:
        return [f"{TABLE.name} has no row {target.name!r}"]
    return [
        *disagreements(row["lacks"], every=STEP_FUNCTIONS, has=target.functions, checked=checked),
        *([f"{target.backend} answers"] if target.backend != row["backend"] else []),
    ]


def test_functions(
    step_target: StepTarget,
    checked_step_functions: frozenset[str],
    record_property: Callable[[str, object], None],
) -> None:
    """What could be asked of the target and what could not, held against the table both ways."""
    check_functions(
        f"{step_target.name}, {step_target.backend}",
        problems(step_target, checked_step_functions),
        table=TABLE,
        lacking=STEP_FUNCTIONS - step_target.functions,
        checked=checked_step_functions,
        record_property=record_property,
    )
