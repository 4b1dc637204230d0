"""Lengths of decode and verify steps against dealing out every token, and what is refused."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from topology_rules import rule

from harness.errors import InjectionError, TopologyError, UsageError
from harness.topology import KVLayout, Step, StepBuffers, StepLens, step_lens
from harness.topology.targets.step import STEP_FUNCTIONS, StepFunction, named, step_target

REFERENCE = step_target("reference")
LAYOUT = KVLayout(dcp_size=4, page_size=16)

layouts = st.builds(
    lambda dcp, interleave, turns: KVLayout(
        dcp_size=dcp, page_size=interleave * turns, interleave=interleave
    ),
    st.integers(1, 9),
    st.integers(1, 5),
    st.integers(1, 3),
)
steps = st.sampled_from(list(Step))


def owners(layout: KVLayout, tokens: int) -> list[int]:
    """The rank of each token, dealt `interleave` at a time."""
    dealt: list[int] = []
    while len(dealt) < tokens:
        dealt += [rank for rank in range(layout.dcp_size) for _ in range(layout.interleave)]
    return dealt[:tokens]


def counted(layout: KVLayout, rank: int, length: int, step: Step, draft: int) -> tuple[int, int, list[int]]:
    """Global length, local length, and what each query token sees, by looking at every token of the sequence."""
    queries = draft if step is Step.VERIFY else 1
    tokens = owners(layout, length + draft if step is Step.VERIFY else length)
    first = len(tokens) - queries
    seen = [sum(1 for at, owner in enumerate(tokens) if owner == rank and at <= first + query)
            for query in range(queries)]  # fmt: skip
    return len(tokens), tokens.count(rank), seen


@rule
@given(layout=layouts, step=steps, draft=st.integers(1, 9), data=st.data())
def test_lengths_are_as_counted(layout: KVLayout, step: Step, draft: int, data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(0, 90), max_size=5))
    rank = data.draw(st.integers(0, layout.dcp_size - 1))
    found = step_lens(layout, rank, lengths, step=step, draft_tokens=draft)
    expected = [counted(layout, rank, length, step, draft) for length in lengths]
    assert found == StepLens(
        global_lens=tuple(length for length, _, _ in expected),
        local_lens=tuple(length for _, length, _ in expected),
        visible=tuple(tuple(seen) for _, _, seen in expected),
    )
    assert found.longest == max([1, *(length for _, length, _ in expected)])


@rule
@given(layout=layouts, step=steps, draft=st.integers(1, 4), rows=st.integers(0, 5), data=st.data())
def test_buffers_hold_the_last_batch_and_padding(
    layout: KVLayout, step: Step, draft: int, rows: int, data: st.DataObject
) -> None:
    """Several batches into the same memory: what is read is what a fresh one would hold, in every place."""
    rank = data.draw(st.integers(0, layout.dcp_size - 1))
    batches = data.draw(st.lists(st.lists(st.integers(0, 90), max_size=rows), max_size=4))
    memory = [array("q", [-7] * rows), array("q", [-7] * rows), array("q", [-7] * rows * step.tokens(draft))]
    whole, local, visible = memory
    buffers = StepBuffers(step=step, draft_tokens=draft, global_lens=whole, local_lens=local, visible=visible)
    for batch in batches:
        expected = [
            counted(layout, rank, length, step, draft) for length in [*batch, *[1] * (rows - len(batch))]
        ]
        written = buffers.update(layout, rank, batch)
        assert whole.tolist() == list(written.global_lens) == [length for length, _, _ in expected]
        assert local.tolist() == list(written.local_lens) == [length for _, length, _ in expected]
        assert visible.tolist() == [length for _, _, seen in expected for length in seen]


def test_a_decode_step_adds_no_draft_tokens_and_sees_itself() -> None:
    found = step_lens(LAYOUT, 2, [10, 20, 30], step=Step.DECODE, draft_tokens=8)
    assert found.global_lens == (10, 20, 30)
    assert found.local_lens == (2, 5, 7)
    assert found.visible == ((2,), (5,), (7,))
    assert found == step_lens(LAYOUT, 2, [10, 20, 30], step=Step.DECODE)


def test_a_verify_step_adds_them_all() -> None:
    found = step_lens(LAYOUT, 2, [10], step=Step.VERIFY, draft_tokens=8)
    assert (found.global_lens, found.local_lens) == ((18,), (4,))
    assert found.visible == ((3, 3, 3, 3, 4, 4, 4, 4),)


def test_query_tokens_differ_by_who_holds_them() -> None:
    """Positions 0 and 1 of a sequence that was empty: rank 0 holds the first, rank 1 the second."""
    seen = [step_lens(LAYOUT, rank, [0], step=Step.VERIFY, draft_tokens=2).visible for rank in range(4)]
    assert seen == [((1, 1),), ((0, 1),), ((0, 0),), ((0, 0),)]


def test_the_bound_is_never_zero() -> None:
    assert step_lens(LAYOUT, 3, [], step=Step.DECODE).longest == 1
    assert step_lens(LAYOUT, 3, [1, 2], step=Step.DECODE).longest == 1
    assert step_lens(LAYOUT, 3, [9, 16], step=Step.DECODE).longest == 4


@pytest.mark.parametrize(
    ("rank", "lengths", "draft", "message"),
    [
        (4, [1], 1, r"^rank is 4, but the DCP group has ranks 0\.\.3$"),
        (0, [5, -1], 1, r"^positions 0\.\.-1 are no stretch"),
        (0, [5], 0, "draft_tokens"),
    ],
)
def test_wrong_numbers_are_refused(rank: int, lengths: list[int], draft: int, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        step_lens(LAYOUT, rank, lengths, step=Step.DECODE, draft_tokens=draft)


def test_too_many_sequences_are_refused_and_nothing_is_written() -> None:
    memory = ([0, 0], [0, 0], [0] * 6)
    whole, local, visible = memory
    buffers = StepBuffers(
        step=Step.VERIFY, draft_tokens=3, global_lens=whole, local_lens=local, visible=visible
    )
    buffers.update(LAYOUT, 0, [4, 5])
    before = [list(part) for part in memory]
    with pytest.raises(TopologyError, match=r"^3 sequences do not fit into buffers of 2 rows$"):
        buffers.update(LAYOUT, 0, [1, 2, 3])
    with pytest.raises(TopologyError, match="no stretch"):
        buffers.update(LAYOUT, 0, [9, -4])
    assert [list(part) for part in memory] == before == [[7, 8], [2, 2], [2, 2, 2, 2, 2, 2]]


@pytest.mark.parametrize(
    ("local", "visible", "message"),
    [
        (1, 6, "^local_lens has 1 places, but 2 rows of 3 query tokens need 2$"),
        (2, 2, "^visible has 2 places, but 2 rows of 3 query tokens need 6$"),
    ],
)
def test_buffers_of_other_sizes_are_refused(local: int, visible: int, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        StepBuffers(
            step=Step.VERIFY,
            draft_tokens=3,
            global_lens=[0, 0],
            local_lens=[0] * local,
            visible=[0] * visible,
        )


def test_a_decode_graph_has_one_place_for_each_sequence() -> None:
    sizes = {"global_lens": [0] * 3, "local_lens": [0] * 3, "visible": [0] * 3}
    StepBuffers(step=Step.DECODE, draft_tokens=5, **sizes)
    with pytest.raises(TopologyError, match="need 15"):
        StepBuffers(step=Step.VERIFY, draft_tokens=5, **sizes)
    with pytest.raises(TopologyError, match="draft_tokens"):
        StepBuffers(step=Step.DECODE, draft_tokens=0, **sizes)


def test_the_reference_target_answers_as_counted_by_hand() -> None:
    assert (
        REFERENCE.functions
        == STEP_FUNCTIONS
        == {named(function, interleave) for function in StepFunction for interleave in (1, 4)}
    )
    assert (REFERENCE.name, REFERENCE.backend) == ("reference", "step_lens")
    answer = REFERENCE.lengths(LAYOUT, 1, [1, 6], step=Step.VERIFY, draft_tokens=2)
    assert (answer.global_lens, answer.local_lens, answer.paged, answer.longest) == (
        [3, 8],
        [1, 2],
        [1, 2],
        2,
    )
    first, second = REFERENCE.replays(LAYOUT, 1, [[6, 9], [2]], rows=2, step=Step.DECODE, draft_tokens=2)
    assert (first.global_lens, first.local_lens, first.paged) == ([6, 9], [2, 2], [2, 2])
    assert (second.global_lens, second.local_lens, second.paged) == ([2, 1], [1, 0], [1, 0])
    assert (first.visible, second.visible) == ([2, 2], [1, 0])
    assert REFERENCE.visible(LAYOUT, 1, [0, 4], draft_tokens=2) == [[0, 1], [1, 2]]


def test_other_targets_are_refused() -> None:
    with pytest.raises(InjectionError, match="make sglang VERSION="):
        step_target("sglang")
    with pytest.raises(UsageError, match=r"^target is 'vllm'; allowed: reference, sglang$"):
        step_target("vllm")
