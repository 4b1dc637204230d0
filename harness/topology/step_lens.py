"""How long sequences are in one decode or verify step: on all ranks together, on one, and for each query token.

What attention needs to know of a step under DCP, beside where the rows are. A rank attends to its own rows alone, so a
kernel is given local lengths; which of several query tokens may see which row follows from global ones. Pure
arithmetic, as `layout`; suite `dcp/mla_metadata` checks it against enumeration, and the real package beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from harness.errors import TopologyError
from harness.topology.config import require_positive
from harness.topology.layout import KVLayout

# What a captured batch is filled up with: such a row reads at most one token, that of the reserved page.
PADDING_LEN = 1


class Step(StrEnum):
    """Whether a draft's tokens are in the step; it decides what a sequence's length stands for."""

    DECODE = "decode"
    """One query token a sequence; the length counts it already."""
    VERIFY = "verify"
    """`draft_tokens` query tokens a sequence, all of them beyond its length."""

    def tokens(self, draft_tokens: int) -> int:
        """Query tokens of each sequence, in an engine whose drafts are this long."""
        return draft_tokens if self is Step.VERIFY else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLens:
    """The lengths of one step on one rank, in tokens, by sequence.

    `global_lens` are those on all ranks together once the step's tokens are written, `local_lens` this rank's part.
    `visible` has, for each query token of each sequence in order, the part of this rank that it may see: up to and
    with itself.
    """

    global_lens: tuple[int, ...]
    local_lens: tuple[int, ...]
    visible: tuple[tuple[int, ...], ...]

    @property
    def longest(self) -> int:
        """The longest local length, and 1 where this rank has nothing: kernels want a bound above 0."""
        return max((1, *self.local_lens))


def step_lens(
    layout: KVLayout, rank: int, lengths: Sequence[int], *, step: Step, draft_tokens: int = 1
) -> StepLens:
    """The lengths of a step over sequences of these `lengths`, on DCP rank `rank`.

    `draft_tokens` is a setting of the engine: a decode step adds none of them. Raises TopologyError for a rank outside
    the group, a length below 0, and a draft without a token.
    """
    require_positive(draft_tokens=draft_tokens)
    tokens = step.tokens(draft_tokens)
    added = tokens if step is Step.VERIFY else 0
    whole = tuple(length + added for length in lengths)
    return StepLens(
        global_lens=whole,
        local_lens=tuple(layout.local_len(length, rank) for length in whole),
        visible=tuple(
            tuple(layout.local_len(max(0, length - behind), rank) for behind in reversed(range(tokens)))
            for length in whole
        ),
    )


class Buffer(Protocol):
    """Memory for whole numbers that is written element by element: a list, an array, a tensor."""

    def __len__(self) -> int: ...

    def __setitem__(self, index: int, value: int, /) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBuffers:
    """What a captured graph of one kind of step reads: made once, written over before each replay, never replaced.

    `global_lens` [rows], `local_lens` [rows] and `visible` [rows * query tokens] are as in `StepLens`. Raises
    TopologyError where their sizes do not belong together.
    """

    step: Step
    draft_tokens: int = 1
    global_lens: Buffer
    local_lens: Buffer
    visible: Buffer

    def __post_init__(self) -> None:
        require_positive(draft_tokens=self.draft_tokens)
        rows, tokens = len(self.global_lens), self.step.tokens(self.draft_tokens)
        for name, wanted in (("local_lens", rows), ("visible", rows * tokens)):
            if (found := len(getattr(self, name))) != wanted:
                raise TopologyError(
                    f"{name} has {found} places, but {rows} rows of {tokens} query tokens need {wanted}"
                )

    def update(self, layout: KVLayout, rank: int, lengths: Sequence[int]) -> StepLens:
        """Write the lengths of a batch of `lengths`, filled up to all rows with sequences of PADDING_LEN.

        Returns what was written, padding rows included. Raises TopologyError where there are more sequences than rows,
        and whatever `step_lens` raises; then nothing is written.
        """
        rows = len(self.global_lens)
        if len(lengths) > rows:
            raise TopologyError(f"{len(lengths)} sequences do not fit into buffers of {rows} rows")
        padded = [*lengths, *[PADDING_LEN] * (rows - len(lengths))]
        lens = step_lens(layout, rank, padded, step=self.step, draft_tokens=self.draft_tokens)
        _write(self.global_lens, lens.global_lens)
        _write(self.local_lens, lens.local_lens)
        _write(self.visible, [length for tokens in lens.visible for length in tokens])
        return lens


def _write(buffer: Buffer, values: Sequence[int]) -> None:
    for index, value in enumerate(values):
        buffer[index] = value
