"""What became of one question of a scored task: the value that checks make, gates count and the ledger keeps.

Only `correct` and `wrong` speak of accuracy. A request that failed, an answer that was cut off and one
without a number are told apart from wrong answers: they are faults of another kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class QuestionOutcome(StrEnum):
    """How one question ended."""

    CORRECT = "correct"
    WRONG = "wrong"
    TRUNCATED = "truncated"  # stopped by the token limit, not by the model
    UNPARSABLE = "unparsable"  # finished, and holds no number
    ERROR = "error"  # the request failed

    @property
    def scored(self) -> bool:
        return self in (QuestionOutcome.CORRECT, QuestionOutcome.WRONG)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionRecord:
    """One question as one engine answered it.

    `question` is its number in the task's own order (for GSM8K the line of the file, from 1). `prompt_hash` is
    the beginning of the SHA-256 of the whole prompt, `answer` the number found in `text` (None where there is
    none), `tokens` how many the engine generated, `seconds` the latency of the request.
    """

    question: int
    prompt_hash: str
    outcome: QuestionOutcome
    expected: str
    answer: str | None = None
    text: str = ""
    tokens: int = 0
    finish_reason: str = ""
    seconds: float = 0.0
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "outcome": self.outcome.value}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> QuestionRecord:
        """The inverse of `to_json`. Raises TypeError or ValueError for a body of another shape."""
        return cls(**{**body, "outcome": QuestionOutcome(body["outcome"])})
