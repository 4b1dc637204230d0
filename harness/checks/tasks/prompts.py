"""Few-shot prompts in the shape that upstream's GSM8K tests send, for every task. Pure.

Worked answers are shown as the data has them, calculator marks (`<<3*2=6>>`) included: a model that copies them
is scored all the same, and results stay comparable with those that others publish.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.checks.tasks.base import Question

# Upstream's: a model that goes on to a next question, or to the next turn of a chat, has given its answer.
STOPS = ("Question", "Assistant:", "<|separator|>")


# Names this shape in fingerprints: a baseline recorded with other prompts is no baseline.
PROMPT_SHAPE = "prompts 1: Question, Answer"


def few_shot_prompt(shots: Sequence[Question], question: Question) -> str:
    """The worked `shots`, then the question with its answer left open."""
    return shown(shots) + _open(question)


def shown(shots: Sequence[Question]) -> str:
    """The worked examples: what every prompt begins with."""
    return "".join(f"{_open(shot)} {shot.answer}\n\n" for shot in shots)


def _open(question: Question) -> str:
    return f"Question: {question.question}\nAnswer:"
