"""The questions of `decode_sanity`, by what a model can be asked.

A model of random weights answers noise, one that was trained on sums knows no capitals: each set holds only
what a healthy engine answers rightly with its model, so that a wrong answer speaks of the engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from harness.suites import DecodeSanityParams

# Two digits, one token each, and some to see that the number ends there.
DRILL_TOKENS = 4


class Repeat(Enum):
    """How much of an answer must be the same when the question is asked again."""

    NONE = "none"
    FIRST_LINE = "first line"  # what follows drifts on near ties (experts in parallel, speculative decoding)
    WHOLE = "whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One question. `expect` is a regular expression that a right answer matches somewhere, empty where any
    answer is right; `text` says that the answer is English or figures, so that its characters can be judged;
    `ends` that the model ends it by itself; `enough` is a number of new tokens that a right answer needs."""

    prompt: str
    expect: str = ""
    repeat: Repeat = Repeat.FIRST_LINE
    text: bool = True
    ends: bool = False
    enough: int | None = None

    def limit(self, most: int) -> int:
        """How many new tokens to ask for where the check allows `most`."""
        return most if self.enough is None else min(most, self.enough)


def _drill(left: str, result: int) -> Probe:
    """A bare equation as the training has them; what the model writes after the result was never learned."""
    return Probe(prompt=f"{left} = ", expect=rf"^{result}\b", enough=DRILL_TOKENS)


def _story(question: str, result: int) -> Probe:
    return Probe(
        prompt=f"Question: {question}\nAnswer:",
        expect=rf"\n#### {result}$",
        repeat=Repeat.WHOLE,
        ends=True,
    )


def _noise(prompt: str) -> Probe:
    return Probe(prompt=prompt, repeat=Repeat.WHOLE, text=False)


PROBES: MappingProxyType[str, tuple[Probe, ...]] = MappingProxyType(
    {
        # The facts that upstream asks for. The last two have no right answer and are long enough to measure.
        "chat": (
            Probe(prompt="Question: What is the capital of France?\nAnswer:", expect="(?i)paris"),
            Probe(prompt="Question: What is 17 x 23? Give only the number.\nAnswer:", expect=r"\b391\b"),
            Probe(
                prompt="Question: Which is the third primary colour beside red and blue?\nAnswer:",
                expect="(?i)yellow|green",
            ),
            Probe(prompt="Write one sentence about a sunny day in a park.", repeat=Repeat.NONE),
            Probe(prompt="Explain in a few words what gravity is.", repeat=Repeat.NONE),
        ),
        # Of what the training has: the model of the release prefers each token of these by 7 nats or more.
        "sums": (
            _drill("46 + 37", 83),
            _drill("93 - 48", 45),
            _drill("7 * 8", 56),
            _drill("72 / 9", 8),
            _story(
                "Emma has 5 jars with 8 shells each. Emma gives 12 shells to Finn. "
                "Emma shares the shells equally among 4 friends. How many does each friend get?",
                7,
            ),
        ),
        # One shorter than a page of 16, and one that lies on several ranks and pages.
        "bytes": (_noise("abc"), _noise("The quick brown fox jumps over the lazy dog. " * 3)),
    }
)

# Models that no chat question fits, by the beginning of their names.
_BY_NAME = (("builtin:sums-", "sums"), ("builtin:random-", "bytes"))


def probe_set_of(model: str) -> str:
    """The set that suits a model of this name, as the engine tells it."""
    return next((name for beginning, name in _BY_NAME if model.startswith(beginning)), "chat")


def probes_of(params: DecodeSanityParams, *, name: str) -> tuple[Probe, ...]:
    """The probes of the set `name`, and the suite's own."""
    return PROBES[name] + tuple(Probe(prompt=own.prompt, expect=own.expect) for own in params.ask)
