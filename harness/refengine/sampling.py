"""From logits to tokens: greedy and temperature, and the log-probabilities that answers report.

Called on the sampling rank once per step for the whole batch, and for prompts when their log-probabilities
are asked for. A draw depends on its request's seed and the number of tokens it has already got, never on
which other requests share the step, so a request repeats its answer in any batch. Log-probabilities are those
of the model, before temperature, as SGLang reports them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.errors import UsageError
from harness.refengine.requests import Scored


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingSpec:
    """How to draw one request's next token; `drawn` is the number of tokens it has got so far.

    Temperature 0 is greedy, the lowest id on a tie. `top` asks for that many most likely tokens beside the
    drawn one. Raises UsageError for a temperature or a `top` below 0.
    """

    temperature: float = 0.0
    seed: int = 0
    drawn: int = 0
    top: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature < float("inf"):
            raise UsageError(
                f"temperature is {self.temperature}; allowed: 0 (greedy) and finite numbers above"
            )
        if self.top < 0:
            raise UsageError(f"the number of top log-probabilities is {self.top}; allowed: 0 and more")


def sample(logits: Tensor, specs: Sequence[SamplingSpec]) -> list[Scored]:
    """Next token of every request: logits fp32 [B, vocab], one spec per row."""
    logprobs = logits.log_softmax(dim=-1)
    tokens: list[int] = logits.argmax(dim=-1).tolist()
    for row, spec in enumerate(specs):
        if spec.temperature > 0:
            tokens[row] = _draw(logprobs[row], spec)
    return _scored(logprobs, tokens, [spec.top for spec in specs])


def score(logits: Tensor, tokens: Sequence[int], *, top: int = 0) -> list[Scored]:
    """How likely the given `tokens` [n] were under logits [n, vocab]; for prompts and forced answers."""
    return _scored(logits.log_softmax(dim=-1), list(tokens), [top] * len(tokens))


def _draw(logprobs: Tensor, spec: SamplingSpec) -> int:
    """Invert the distribution function at a number that only (seed, drawn) decide."""
    shares = (logprobs.double() / spec.temperature).softmax(dim=-1).cumsum(dim=-1)
    # Strings are hashed by a fixed function, so the number is the same in every process and release.
    uniform = random.Random(f"{spec.seed}:{spec.drawn}").random()
    drawn = int(torch.searchsorted(shares, uniform * shares[-1].item(), right=True))
    return min(drawn, len(shares) - 1)


def _scored(logprobs: Tensor, tokens: list[int], tops: Sequence[int]) -> list[Scored]:
    chosen: list[float] = logprobs[
        torch.arange(len(tokens)), torch.tensor(tokens, dtype=torch.int64)
    ].tolist()
    widest = min(max(tops, default=0), logprobs.shape[-1])
    likeliest: list[tuple[list[float], list[int]]] = [([], [])] * len(tokens)
    if widest:
        values, ids = logprobs.topk(widest, dim=-1)
        likeliest = list(zip(values.tolist(), ids.tolist(), strict=True))
    return [
        Scored(token=token, logprob=logprob, top=tuple(zip(values[:top], ids[:top], strict=True)))
        for token, logprob, top, (values, ids) in zip(tokens, chosen, tops, likeliest, strict=True)
    ]
