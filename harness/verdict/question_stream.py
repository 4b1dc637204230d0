"""How question records travel from a job to its supervisor: one JSON object a line of `questions.jsonl`.

A job writes each finished batch (`checks.question_log`), the executor reads whatever is there, also after a
kill. Both sides speak through `encode` and `decode`, so that neither has its own idea of a line.

    {"check": "accuracy", "role": "engine", "question": 7, "outcome": "correct", ...}
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from harness.verdict.questions import QuestionRecord

FILE_NAME = "questions.jsonl"

# The ledger's integers have 63 bits.
_MOST = 2**63 - 1
_COUNTS = ("question", "tokens")


class QuestionRole(StrEnum):
    """Who answered: the engine under test, the dcp=1 run it is compared with, or that run asked once more."""

    ENGINE = "engine"
    BASELINE = "baseline"
    BASELINE_AGAIN = "baseline-again"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedQuestion:
    """One line: a record, and the check and role it belongs to."""

    check: str
    role: QuestionRole
    record: QuestionRecord


def encode(check: str, role: QuestionRole, records: Iterable[QuestionRecord]) -> bytes:
    """The lines of one batch, each ended; pure ASCII, so that any text of an engine can travel."""
    lines = ({"check": check, "role": role.value, **record.to_json()} for record in records)
    return "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines).encode("ascii")


def decode(line: bytes) -> AskedQuestion:
    """The inverse, for one line. Raises ValueError, LookupError, TypeError or RecursionError for any other text.

    Half surrogate pairs, which nothing can store or show, become `?`.
    """
    body = _parsed(line)
    check, role = body.pop("check"), QuestionRole(body.pop("role"))
    record = QuestionRecord.from_json(body)
    _check_types({"check": check, **body})
    return AskedQuestion(check=check, role=role, record=record)


def _parsed(line: bytes) -> dict[str, Any]:
    body = json.loads(line)
    if not isinstance(body, dict):
        raise TypeError("a line holds one JSON object")
    if b"\\ud" in line.lower():
        body = json.loads(json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"))
    return dict(body)


def _check_types(body: Mapping[str, Any]) -> None:
    """Raises TypeError or ValueError for a value that its column could not hold."""
    for name, value in body.items():
        if name in _COUNTS:
            fits = type(value) is int and 0 <= value <= _MOST
        elif name == "seconds":
            fits = type(value) in (int, float) and math.isfinite(value)
        else:
            fits = isinstance(value, str) or (name == "answer" and value is None)
        if not fits:
            raise TypeError(f"{name} is {value!r:.60}")
