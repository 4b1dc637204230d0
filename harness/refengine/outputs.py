"""From a step's logits to what the front is told: sampled tokens and log-probabilities. Rank 0 only.

Rank 0 samples, keeps what belongs to each token, and sends it once all ranks have been told the token; until
then nothing of it is visible anywhere, so that what the front sees is always what every rank has agreed on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from harness.refengine.batch import Batch, SequenceChunk
from harness.refengine.requests import Progress, Scored
from harness.refengine.sampling import SamplingSpec, sample, score
from harness.refengine.scheduler import Running, wants_token


class Outputs:
    """Of requests in flight, by rid: the token sampled last, and the prompt's until its first token; of those taken
    over in this step, what the other engine told of their first token."""

    def __init__(self) -> None:
        self._last: dict[str, Scored] = {}
        self._prompts: dict[str, list[Scored | None]] = {}
        self._accepted: dict[str, dict[str, Any]] = {}

    def accept(self, rid: str, first: dict[str, Any]) -> None:
        """The first token of `rid`, as `describe` told it on another engine; it is told on when it is described."""
        self._accepted[rid] = first

    def sample(self, batch: Batch, logits: Tensor, running: Mapping[str, Running]) -> dict[str, int]:
        """Sample a token for each chunk that ends its sequence; logits are [rows, vocab] in chunk order."""
        ends: list[int] = []
        row = 0
        for chunk in batch.chunks:
            rows = len(chunk.tokens) if chunk.all_logits else 1
            if chunk.all_logits:
                self._score_prompt(chunk, logits[row : row + rows], running[chunk.rid])
            row += rows
            ends.append(row - 1)
        chosen = [
            (end, running[chunk.rid])
            for end, chunk, wanted in zip(ends, batch.chunks, wants_token(batch, running), strict=True)
            if wanted
        ]
        if not chosen:
            return {}
        scored = sample(logits[[end for end, _ in chosen]], [_spec(sequence) for _, sequence in chosen])
        self._last = {sequence.request.rid: one for (_, sequence), one in zip(chosen, scored, strict=True)}
        return {rid: one.token for rid, one in self._last.items()}

    def describe(self, progress: Sequence[Progress]) -> list[dict[str, Any]]:
        """What the front is told about each step of progress; forgets requests that have ended."""
        items = [self._item(one) for one in progress]
        self._accepted = {}
        return items

    def _item(self, progress: Progress) -> dict[str, Any]:
        item: dict[str, Any] = {"rid": progress.rid, "token": progress.token, "finish": progress.finish}
        prompt = self._prompts.pop(progress.rid, None)
        if progress.token is None:
            return item
        if accepted := self._accepted.get(progress.rid):
            return accepted | item
        scored = self._last[progress.rid]
        item |= {"logprob": scored.logprob, "top": scored.top}
        if prompt is not None:
            item["prompt_logprobs"] = [None if one is None else one.logprob for one in prompt]
            item["prompt_top"] = [None if one is None else one.top for one in prompt]
        return item

    def _score_prompt(self, chunk: SequenceChunk, logits: Tensor, sequence: Running) -> None:
        """The row of position p says how likely the prompt's token p + 1 was."""
        first = chunk.start + 1
        known = sequence.request.tokens[first : first + len(chunk.tokens)]
        entries = self._prompts.setdefault(chunk.rid, [None])
        entries += score(logits[: len(known)], known, top=sequence.request.top_logprobs)


def _spec(sequence: Running) -> SamplingSpec:
    request = sequence.request
    return SamplingSpec(
        temperature=request.temperature,
        seed=request.seed,
        drawn=sequence.num_answered,
        top=request.top_logprobs,
    )
