"""The step target `reference`: this room's own arithmetic, asked in the words of `StepTarget`."""

from __future__ import annotations

from collections.abc import Sequence

from harness.topology.layout import KVLayout
from harness.topology.step_lens import Step, StepBuffers, step_lens
from harness.topology.targets.step import STEP_FUNCTIONS, Answer, Replay


class ReferenceStep:
    """Has a function for every question."""

    name = "reference"
    backend = step_lens.__name__
    functions = STEP_FUNCTIONS

    def lengths(
        self, layout: KVLayout, rank: int, lengths: Sequence[int], *, step: Step, draft_tokens: int
    ) -> Answer:
        found = step_lens(layout, rank, lengths, step=step, draft_tokens=draft_tokens)
        local = list(found.local_lens)
        return Answer(
            global_lens=list(found.global_lens), local_lens=local, paged=local, longest=found.longest
        )

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
        whole, local, visible = [0] * rows, [0] * rows, [0] * rows * step.tokens(draft_tokens)
        buffers = StepBuffers(
            step=step, draft_tokens=draft_tokens, global_lens=whole, local_lens=local, visible=visible
        )
        found = []
        for batch in batches:
            written = buffers.update(layout, rank, batch)
            found.append(
                Replay(
                    global_lens=list(whole),
                    local_lens=list(local),
                    paged=list(written.local_lens),
                    visible=list(visible),
                )
            )
        return found

    def visible(
        self, layout: KVLayout, rank: int, lengths: Sequence[int], *, draft_tokens: int
    ) -> list[list[int]]:
        found = step_lens(layout, rank, lengths, step=Step.VERIFY, draft_tokens=draft_tokens)
        return [list(tokens) for tokens in found.visible]
