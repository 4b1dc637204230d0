"""Two answers side by side: the first place where they part, and how far their logprobs are apart. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from harness.engines import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The worst place of one pair of answers.

    `where` is `prompt` or `output`; `position` counts from the prompt's first token, so it is a KV position.
    """

    length: int
    where: str
    position: int
    token: int
    baseline_token: int
    logprob: float
    baseline_logprob: float

    @property
    def gap(self) -> float:
        """|Δ logprob| in nats."""
        return abs(self.logprob - self.baseline_logprob)

    @property
    def token_differs(self) -> bool:
        return self.token != self.baseline_token

    def sentence(self) -> str:
        """Position and both logprobs, for a person."""
        at = f"prompt of {self.length}, {self.where} position {self.position}"
        if self.token_differs:
            return (
                f"{at}: token {self.token} (logprob {self.logprob:.6f}), "
                f"baseline token {self.baseline_token} (logprob {self.baseline_logprob:.6f})"
            )
        return (
            f"{at}: logprob {self.logprob:.6f}, baseline {self.baseline_logprob:.6f}, apart by {self.gap:.3g}"
        )

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "gap": self.gap}


def compare(answer: Answer, baseline: Answer, *, prompt: tuple[int, ...]) -> list[Difference]:
    """Every compared place in order: the prompt's logprobs, then outputs up to and with the first other token.

    After a different token the two engines answer different questions, so nothing later is compared.
    """
    length = len(prompt)
    places = [
        Difference(
            length=length,
            where="prompt",
            position=position,
            token=prompt[position],
            baseline_token=prompt[position],
            logprob=ours,
            baseline_logprob=theirs,
        )
        for position, (ours, theirs) in enumerate(
            zip(answer.prompt_logprobs, baseline.prompt_logprobs, strict=False), start=1
        )
    ]
    for step, (token, base_token) in enumerate(zip(answer.tokens, baseline.tokens, strict=False)):
        places.append(
            Difference(
                length=length,
                where="output",
                position=length + step,
                token=token,
                baseline_token=base_token,
                logprob=answer.logprobs[step],
                baseline_logprob=baseline.logprobs[step],
            )
        )
        if token != base_token:
            break
    return places


def worst(places: Iterable[Difference]) -> Difference | None:
    """The largest gap; a NaN gap is the largest of all, for NaN must never pass as close."""
    return max(places, key=lambda place: (place.gap != place.gap, place.gap), default=None)


def beyond(place: Difference, *, bound: float) -> bool:
    """True when the gap is above `bound` nats, or is no number at all."""
    return not place.gap <= bound


def unfinished(answer: Answer, *, max_new_tokens: int) -> str:
    """Why an answer is not a full one; empty when it is."""
    if len(answer.tokens) != max_new_tokens:
        return f"{len(answer.tokens)} of {max_new_tokens} tokens (finish reason {answer.finish_reason!r})"
    return ""
