"""What checks ask of a dcp=1 baseline: groups of requests, and plans of questions; asked, stored, read back.

Every check says in advance what it wants answered; the session asks it of one engine, or finds it in the cache.
`digest` identifies what was asked, `encode` and `decode` carry answers to the cache and back without loss.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from harness.checks.question_log import QuestionLog
from harness.checks.questions import QuestionPlan, ask_questions, empty_cache
from harness.engines import Answer, EngineClient, GenerateRequest
from harness.verdict import QuestionOutcome, QuestionRecord, QuestionRole

# The check that asks questions, as its log and the ledger call it.
ASKED_BY = "accuracy"
NO_LOG = QuestionLog(None)

RequestGroup = tuple[GenerateRequest, ...]
QuestionRuns = tuple[tuple[QuestionRecord, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAsk:
    """A plan asked `runs` times over: the flips between two runs are the noise of a good engine (A/A)."""

    plan: QuestionPlan
    runs: int = 1


Ask = RequestGroup | QuestionAsk
Answers = tuple[Answer, ...] | QuestionRuns


def ask_engine(client: EngineClient, ask: Ask, *, log: QuestionLog = NO_LOG) -> Answers:
    """Have the engine answer. A group is sent as one batch, a plan batch by batch, each run from an empty cache.

    Raises what the client raises; a question whose request failed is a record, as everywhere. `log` gets each
    batch of records when it is done.
    """
    if not isinstance(ask, QuestionAsk):
        return tuple(client.generate_batch(list(ask)))
    runs = []
    for number in range(ask.runs):
        on_batch = partial(_log_batch, log, _role(number))
        empty_cache(client)
        runs.append(tuple(ask_questions(client, ask.plan, on_batch=on_batch)))
    return tuple(runs)


def log_answers(answers: Answers, log: QuestionLog) -> None:
    """Log what was answered in another run as this run's baseline: its ledger holds both sides of every flip."""
    for number, run in enumerate(answers):
        if isinstance(run, tuple):  # of records; an answer to a request is no tuple
            log.write(ASKED_BY, _role(number), run)


def _role(number: int) -> QuestionRole:
    return QuestionRole.BASELINE if number == 0 else QuestionRole.BASELINE_AGAIN


def _log_batch(log: QuestionLog, role: QuestionRole, records: Sequence[QuestionRecord]) -> bool:
    log.write(ASKED_BY, role, records)
    return False


def complete(answers: Answers) -> bool:
    """Whether every request was answered: only then are they worth keeping."""
    return not any(
        record.outcome is QuestionOutcome.ERROR
        for run in answers
        if not isinstance(run, Answer)
        for record in run
    )


def digest(ask: Ask) -> str:
    """SHA-256 of all that was asked, the same on every machine."""
    if isinstance(ask, QuestionAsk):
        plan = ask.plan
        told: Any = ["questions", plan.digest_of_questions, plan.batch, plan.concurrency, ask.runs]
    else:
        told = ["requests", [asdict(request) for request in ask]]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def encode(answers: Answers) -> list[Any]:
    """Answers as JSON values."""
    return [
        asdict(each) if isinstance(each, Answer) else [record.to_json() for record in each]
        for each in answers
    ]


def decode(ask: Ask, body: list[Any]) -> Answers:
    """The inverse of `encode`. Raises TypeError, KeyError or ValueError for a body that answers something else."""
    if isinstance(ask, QuestionAsk):
        runs = tuple(tuple(QuestionRecord.from_json(record) for record in run) for run in body)
        if [len(run) for run in runs] != [len(ask.plan.items)] * ask.runs:
            raise ValueError("not every question was answered")
        return runs
    if len(body) != len(ask):
        raise ValueError(f"{len(body)} answers for {len(ask)} requests")
    return tuple(_answer(each) for each in body)


def _answer(body: Mapping[str, Any]) -> Answer:
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in body.items()
    }
    return Answer(**values)
