"""What suite `dcp/mla_metadata` asks about the lengths of a step, and who answers: our arithmetic, or the real package.

As `targets.layout`: plain integers, and `functions` says which questions a target has a function for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from harness.errors import UsageError
from harness.topology.layout import KVLayout
from harness.topology.step_lens import Step


class StepFunction(StrEnum):
    """A question that a target may have a function for; the value is its name in reports and in the table."""

    LENGTHS = "lengths of a step"
    PAGED = "lengths that a replay's page table is made for"
    VERIFY_BUFFERS = "verify lengths in a graph's buffers"
    DECODE_BUFFERS = "decode lengths in a graph's buffers"
    VISIBLE = "lengths that query tokens see"
    VISIBLE_BUFFERS = "lengths that query tokens see in a graph's buffers"
    OVERFULL = "more sequences than a graph has rows"


def named(function: StepFunction, interleave: int = 1) -> str:
    """The function for this interleave."""
    return f"{function}, interleaved" if interleave > 1 else str(function)


STEP_FUNCTIONS = frozenset(named(function, interleave) for function in StepFunction for interleave in (1, 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Lengths by sequence, in tokens: those that attention is given, and those that the page table is made for.

    `longest` is the bound that a kernel is launched with.
    """

    global_lens: list[int]
    local_lens: list[int]
    paged: list[int]
    longest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """After one replay: what the captured memory holds, padding rows included, and the page table's lengths.

    `visible` has the query tokens of all rows one after the other, nothing where the graph has no memory for it.
    """

    global_lens: list[int]
    local_lens: list[int]
    paged: list[int]
    visible: list[int]


class StepTarget(Protocol):
    """`rank` is the place in the DCP group; a question that is not among `functions` must not be asked."""

    @property
    def name(self) -> str:
        """As reports say it, with the version."""

    @property
    def backend(self) -> str:
        """The class or function that is asked."""

    @property
    def functions(self) -> frozenset[str]:
        """Of `STEP_FUNCTIONS`, those that this target has."""

    def lengths(
        self, layout: KVLayout, rank: int, lengths: Sequence[int], *, step: Step, draft_tokens: int
    ) -> Answer:
        """Of a step that is not captured."""

    def replays(
        self,
        layout: KVLayout,
        rank: int,
        batches: Sequence[Sequence[int]],
        *,
        rows: int,
        step: Step,
        draft_tokens: int,
    ) -> list[Replay]:
        """Of one captured graph of `rows` sequences, replayed for each of the batches, which may be smaller.

        Raises TopologyError for a larger one, where that is among `functions`.
        """

    def visible(
        self, layout: KVLayout, rank: int, lengths: Sequence[int], *, draft_tokens: int
    ) -> list[list[int]]:
        """Of a verify step, by sequence and query token."""


def step_target(name: str) -> StepTarget:
    """`reference` or `sglang`. Raises UsageError for another name, InjectionError where the package is missing."""
    if name == "reference":
        from harness.topology.targets.reference_step import ReferenceStep

        return ReferenceStep()
    if name == "sglang":
        from harness.topology.targets.sglang_step import SglangStep

        return SglangStep()
    raise UsageError(f"target is {name!r}; allowed: reference, sglang")
