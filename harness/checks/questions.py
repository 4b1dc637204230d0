"""Asking the questions of a scored task: what is asked, in which order, and what became of each.

Used by `accuracy` for the engine under test, for its dcp=1 baseline and to record one. Phases: `make_plan` fixes
every prompt and the order; `ask_questions` sends them in whole batches, so that an early stop never sees the
short answers first; each answer becomes one record.
Failure rule: nothing that failed is ever wrong. A request that fails is an ERROR record and is not sent again;
an engine that died or a deadline that passed ends the asking, after what was answered has been handed on.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from harness.checks.tasks import load_task
from harness.checks.tasks.answers import ANSWER_RULE, find_answer, same_number
from harness.checks.tasks.base import Question
from harness.checks.tasks.prompts import PROMPT_SHAPE, STOPS, few_shot_prompt, shown
from harness.engines import Completion, EngineClient
from harness.errors import DeadlineError, EngineDiedError, EngineError, RequestRefusedError, UsageError
from harness.suites.check_params import AccuracyParams
from harness.verdict import QuestionOutcome, QuestionRecord

# A record keeps the end of a text, where the answer stands: twice the mean worked answer of GSM8K (293
# characters), and a run of 1,319 questions stays below one megabyte.
TEXT_KEPT = 600
# Hex digits of a prompt's SHA-256 in a record: 64 bits tell all prompts of a task apart.
HASH_DIGITS = 16
# Once an engine died, its other answers come or fail at once; whoever stays silent longer hangs with it.
LAST_ANSWERS_S = 10.0
# How OpenAI's interface says that an answer was cut off, and that it is whole.
CUT_OFF, WHOLE = "length", "stop"

Clock = Callable[[], float]
# Gets each finished batch; True stops the asking.
OnBatch = Callable[[Sequence[QuestionRecord]], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedQuestion:
    """One question with its whole prompt. `number` is its place in the task's own order."""

    number: int
    prompt: str
    expected: str
    prompt_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionPlan:
    """What is asked, in order.

    `digest` is that of the task's data. `asked` names how every question is asked and scored, whichever they are:
    the prompt's shape, the examples, the rule that reads answers, an order of their own. `short_by` says how many
    questions fewer there are than were wanted, `notes` what else a report should say of the data.
    """

    task: str
    label: str
    digest: str
    asked: str
    items: tuple[PlannedQuestion, ...]
    shots: int
    max_new_tokens: int
    stop: tuple[str, ...]
    batch: int
    concurrency: int
    short_by: int = 0
    notes: tuple[str, ...] = ()

    @property
    def digest_of_questions(self) -> str:
        """SHA-256 of all that decides a score besides the engine: prompts and their order, right answers, limits,
        stops, and the rule that reads answers."""
        asked = [[item.number, item.prompt, item.expected] for item in self.items]
        whole = json.dumps([ANSWER_RULE, self.task, self.max_new_tokens, self.stop, asked])
        return _sha256(whole)

    def part(self, start: int, stop: int) -> QuestionPlan:
        """The same plan with a slice of its questions."""
        return replace(self, items=self.items[start:stop])


def make_plan(params: AccuracyParams) -> QuestionPlan:
    """The questions of both stages (`questions`, then up to `escalate`) in a fixed random order.

    The order runs over all questions that may be scored, so the first 200 are a sample and not the file's
    beginning. Raises what `load_task` raises, and UsageError where no question is left to score.
    """
    task = load_task(params)
    scorable = list(task.questions(shots=params.shots))
    if not scorable:
        raise UsageError(f"{task.label}: {params.shots} shots leave no question to score")
    random.Random(f"questions:{params.seed}:{task.name}").shuffle(scorable)
    wanted = max(params.questions, params.escalate or 0)
    shots = task.shots(params.shots)
    # Which questions come first: runs over the same ones are weighed as one run of any others.
    order = f"; order {params.seed}" if params.seed else ""
    return QuestionPlan(
        task=task.name,
        label=task.label,
        digest=task.digest,
        asked=f"{PROMPT_SHAPE}; {ANSWER_RULE}; shots {_sha256(shown(shots))[:HASH_DIGITS]}{order}",
        items=tuple(_planned(shots, question) for question in scorable[:wanted]),
        shots=params.shots,
        max_new_tokens=params.max_new_tokens,
        stop=STOPS,
        batch=params.batch,
        concurrency=params.concurrency,
        short_by=max(0, wanted - len(scorable)),
        notes=task.notes,
    )


def _planned(shots: Sequence[Question], question: Question) -> PlannedQuestion:
    prompt = few_shot_prompt(shots, question)
    return PlannedQuestion(
        number=question.number,
        prompt=prompt,
        expected=question.expected,
        prompt_hash=_sha256(prompt)[:HASH_DIGITS],
    )


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def empty_cache(client: EngineClient) -> None:
    """So that a run computes what it answers; an engine without that verb has no such cache to empty."""
    with contextlib.suppress(RequestRefusedError):
        client.flush_cache()


def ask_questions(
    client: EngineClient,
    plan: QuestionPlan,
    *,
    on_batch: OnBatch | None = None,
    clock: Clock = time.monotonic,
) -> list[QuestionRecord]:
    """Ask all of a plan, a batch at a time with at most `concurrency` in flight; records come in plan order.

    Raises EngineDiedError or DeadlineError, which say after how many answers, once `on_batch` was given what the
    last batch had answered. Every call must be bounded by a deadline of the client's.
    """
    records: list[QuestionRecord] = []
    for start in range(0, len(plan.items), plan.batch):
        batch = _Batch(client, plan.part(start, start + plan.batch), clock)
        answered = batch.run()
        records += answered
        stop = on_batch is not None and bool(answered) and on_batch(answered)
        if batch.ended_by is not None:
            raise _told(batch.ended_by, f"after {len(records)} of {len(plan.items)} questions")
        if stop:
            break
    return records


def _told(error: EngineDiedError | DeadlineError, progress: str) -> EngineDiedError | DeadlineError:
    """The same error, which also says how far the asking had come."""
    told: EngineDiedError | DeadlineError
    if isinstance(error, DeadlineError):
        told = DeadlineError(error.scope, error.seconds, progress=progress)
    else:
        told = EngineDiedError(f"{progress}: {error}", detail=error.detail)
    told.__cause__ = error
    return told


class _Batch:
    """One batch and the threads that ask it; they take questions in order until none is left or all is over.

    The threads are daemons: one that waits for an engine that hangs must not keep the process from ending.
    """

    def __init__(self, client: EngineClient, plan: QuestionPlan, clock: Clock) -> None:
        self.ended_by: EngineDiedError | DeadlineError | None = None
        self._client = client
        self._plan = plan
        self._clock = clock
        # Guards all of the following; told of each thread that ends and of what ended the batch.
        self._changed = threading.Condition()
        self._taken = 0
        self._working = min(plan.concurrency, len(plan.items))
        self._records: dict[int, QuestionRecord] = {}

    def run(self) -> list[QuestionRecord]:
        """Ask, and return what was answered, in order: all of it unless `ended_by` is set."""
        for i in range(self._working):
            threading.Thread(target=self._work, name=f"ask-{i}", daemon=True).start()
        with self._changed:
            self._changed.wait_for(lambda: self._working == 0 or self.ended_by is not None)
            self._changed.wait_for(lambda: self._working == 0, timeout=LAST_ANSWERS_S)
            answered = [self._records[place] for place in sorted(self._records)]
        if self.ended_by is None and len(answered) < len(self._plan.items):
            raise RuntimeError("a thread that asks questions broke off; its traceback is on stderr")
        return answered

    def _work(self) -> None:
        try:
            while (place := self._take()) is not None:
                self._answer(place)
        finally:
            with self._changed:
                self._working -= 1
                self._changed.notify_all()

    def _take(self) -> int | None:
        with self._changed:
            if self.ended_by is not None or self._taken == len(self._plan.items):
                return None
            self._taken += 1
            return self._taken - 1

    def _answer(self, place: int) -> None:
        try:
            record = _ask(self._client, self._plan, self._plan.items[place], self._clock)
        except (EngineDiedError, DeadlineError) as error:
            with self._changed:
                self.ended_by = self.ended_by or error
                self._changed.notify_all()
        else:
            with self._changed:
                self._records[place] = record


def _ask(client: EngineClient, plan: QuestionPlan, item: PlannedQuestion, clock: Clock) -> QuestionRecord:
    begin = clock()
    try:
        completion = client.complete(item.prompt, max_new_tokens=plan.max_new_tokens, stop=plan.stop)
    except EngineDiedError:
        raise
    except EngineError as error:
        return replace(_failed(item, str(error)), seconds=clock() - begin)
    return replace(_score(item, completion), seconds=clock() - begin)


def _failed(item: PlannedQuestion, why: str) -> QuestionRecord:
    return QuestionRecord(
        question=item.number,
        prompt_hash=item.prompt_hash,
        outcome=QuestionOutcome.ERROR,
        expected=item.expected,
        error=_writable(why[:TEXT_KEPT]),
    )


def _score(item: PlannedQuestion, completion: Completion) -> QuestionRecord:
    # What was cut off is no answer, even where a number stands in it: "#### 1" may have become 18.
    answer = find_answer(completion.text) if completion.finish_reason == WHOLE else None
    outcome = _outcome(completion.finish_reason, answer, item.expected)
    failed = outcome is QuestionOutcome.ERROR
    return QuestionRecord(
        question=item.number,
        prompt_hash=item.prompt_hash,
        outcome=outcome,
        expected=item.expected,
        answer=answer,
        text=_writable(completion.text[-TEXT_KEPT:]),
        tokens=completion.tokens,
        finish_reason=completion.finish_reason,
        error=f"the engine ended its answer with {completion.finish_reason!r}" if failed else "",
    )


def _writable(text: str) -> str:
    """JSON may bring half a surrogate pair, which no file and no database takes."""
    return text.encode(errors="replace").decode()


def _outcome(finish_reason: str, answer: str | None, expected: str) -> QuestionOutcome:
    if finish_reason == CUT_OFF:
        return QuestionOutcome.TRUNCATED
    if finish_reason != WHOLE:
        return QuestionOutcome.ERROR
    if answer is None:
        return QuestionOutcome.UNPARSABLE
    return QuestionOutcome.CORRECT if same_number(answer, expected) else QuestionOutcome.WRONG
