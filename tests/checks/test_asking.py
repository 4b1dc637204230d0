"""Questions over real sockets: what becomes of each answer, and what is left when the engine goes."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

import pytest
from fake_completions import MODEL, FakeCompletions, serving_completions

import harness.checks.questions
from harness.checks.questions import (
    TEXT_KEPT,
    PlannedQuestion,
    QuestionPlan,
    ask_questions,
)
from harness.engines import EngineClient
from harness.errors import DeadlineError, EngineDiedError, RequestRefusedError
from harness.verdict import QuestionOutcome, QuestionRecord

OUTCOME = {
    "": QuestionOutcome.CORRECT,
    "wrong": QuestionOutcome.WRONG,
    "refused": QuestionOutcome.ERROR,
    "cut": QuestionOutcome.TRUNCATED,
    "mute": QuestionOutcome.UNPARSABLE,
    "aborted": QuestionOutcome.ERROR,
    "garbled": QuestionOutcome.ERROR,
    "choiceless": QuestionOutcome.ERROR,
}


def plan(questions: int, *, batch: int = 16, concurrency: int = 4) -> QuestionPlan:
    items = tuple(
        PlannedQuestion(
            number=1000 - i, prompt=f"Question: {i}?\nAnswer:", expected=str(i), prompt_hash=f"{i:016x}"
        )
        for i in range(questions)
    )
    return QuestionPlan(
        task="sums",
        label="sums",
        digest="0" * 64,
        asked="",
        items=items,
        shots=0,
        max_new_tokens=32,
        stop=("Question",),
        batch=batch,
        concurrency=concurrency,
    )


class Batches:
    """An `on_batch` that keeps what it was given, and stops after `stop_after` batches."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.given: list[list[QuestionRecord]] = []
        self._stop_after = stop_after

    def __call__(self, records: Sequence[QuestionRecord]) -> bool:
        self.given.append(list(records))
        return len(self.given) == self._stop_after

    @property
    def records(self) -> list[QuestionRecord]:
        return [record for batch in self.given for record in batch]


def numbers(records: Sequence[QuestionRecord]) -> list[int]:
    return [record.question for record in records]


def test_every_answer_becomes_what_it_is() -> None:
    asked = plan(200, batch=64, concurrency=16)
    script = FakeCompletions.of(
        asked, wrong=0.1, refused=0.1, cut=0.1, mute=0.1, aborted=0.1, garbled=0.1, choiceless=0.1
    )
    with serving_completions(script) as url:
        records = ask_questions(EngineClient(url), asked)
    faults = {item.number: script.fault(item.prompt) for item in asked.items}
    assert {record.question: record.outcome for record in records} == {
        number: OUTCOME[fault] for number, fault in faults.items()
    }
    assert set(faults.values()) == set(OUTCOME)
    for record in records:
        fault = faults[record.question]
        assert (record.answer is not None) == (fault in ("", "wrong"))
        assert bool(record.error) == (record.outcome is QuestionOutcome.ERROR)
        assert (record.tokens > 0) == (fault not in ("refused", "garbled", "choiceless"))
    errors = {faults[record.question]: record.error for record in records if record.error}
    assert "status 500: cosmic ray" in errors["refused"]
    assert "'abort'" in errors["aborted"]
    assert "no JSON" in errors["garbled"]
    assert "choices" in errors["choiceless"]


def test_a_failed_request_is_not_sent_again() -> None:
    asked = plan(40)
    script = FakeCompletions.of(asked, refused=1.0)
    with serving_completions(script) as url:
        records = ask_questions(EngineClient(url), asked)
    assert Counter(record.outcome for record in records) == {QuestionOutcome.ERROR: 40}
    assert len(script.bodies) == 40


def test_records_are_in_plan_order_though_the_last_are_answered_first() -> None:
    asked = plan(32, batch=16, concurrency=8)
    given = Batches()
    script = FakeCompletions.of(asked, turned=8)
    with serving_completions(script) as url:
        records = ask_questions(EngineClient(url), asked, on_batch=given)
    assert numbers(records) == [item.number for item in asked.items]
    assert [len(batch) for batch in given.given] == [16, 16]
    assert given.records == records
    assert [record.prompt_hash for record in records] == [item.prompt_hash for item in asked.items]


@pytest.mark.parametrize(("batch", "concurrency", "most"), [(16, 4, 4), (4, 16, 4), (16, 16, 16)])
def test_no_more_are_in_flight_than_allowed(batch: int, concurrency: int, most: int) -> None:
    asked = plan(32, batch=batch, concurrency=concurrency)
    script = FakeCompletions.of(asked, turned=most)  # answers only once so many have come
    with serving_completions(script) as url:
        ask_questions(EngineClient(url), asked)
    assert script.peak == most


def test_a_batch_begins_once_the_one_before_is_whole() -> None:
    asked = plan(30, batch=10, concurrency=10)
    script = FakeCompletions.of(asked)
    seen: list[int] = []

    def on_batch(records: Sequence[QuestionRecord]) -> bool:
        seen.append(len(script.bodies))
        return False

    with serving_completions(script) as url:
        ask_questions(EngineClient(url), asked, on_batch=on_batch)
    assert seen == [10, 20, 30]


def test_true_stops_the_asking() -> None:
    asked = plan(64, batch=16)
    given = Batches(stop_after=2)
    script = FakeCompletions.of(asked)
    with serving_completions(script) as url:
        records = ask_questions(EngineClient(url), asked, on_batch=given)
    assert len(records) == len(script.bodies) == 32


def test_what_is_sent_is_what_was_planned() -> None:
    asked = plan(1)
    script = FakeCompletions.of(asked)
    with serving_completions(script) as url:
        ask_questions(EngineClient(url), asked)
    assert script.bodies == [
        {
            "model": MODEL,
            "prompt": asked.items[0].prompt,
            "max_tokens": 32,
            "temperature": 0.0,
            "stop": ["Question"],
        }
    ]


def test_an_engine_that_dies_at_question_60_has_answered_59() -> None:
    asked = plan(200, batch=32, concurrency=1)
    given = Batches()
    with serving_completions(FakeCompletions.of(asked, dies_at=60)) as url:
        client = EngineClient(url, why_dead=lambda: "rank 3 was killed by SIGKILL")
        with pytest.raises(
            EngineDiedError, match=r"^after 59 of 200 questions: rank 3 was killed by SIGKILL$"
        ):
            ask_questions(client, asked, on_batch=given)
    assert [len(batch) for batch in given.given] == [32, 27]
    assert numbers(given.records) == [item.number for item in asked.items[:59]]
    assert {record.outcome for record in given.records} == {QuestionOutcome.CORRECT}


def test_an_engine_that_dies_under_load_leaves_no_wrong_answers() -> None:
    asked = plan(200, batch=64, concurrency=16)
    given = Batches()
    with serving_completions(FakeCompletions.of(asked, dies_at=100)) as url:
        with pytest.raises(EngineDiedError) as caught:
            ask_questions(EngineClient(url), asked, on_batch=given)
    assert str(caught.value).startswith(f"after {len(given.records)} of 200 questions: ")
    assert 64 <= len(given.records) < 100
    assert {record.outcome for record in given.records} == {QuestionOutcome.CORRECT}


def test_a_dead_engine_gives_no_empty_batch() -> None:
    asked = plan(10)
    given = Batches()
    with serving_completions(FakeCompletions.of(asked, dies_at=1)) as url:
        with pytest.raises(EngineDiedError, match=r"^after 0 of 10 questions"):
            ask_questions(EngineClient(url), asked, on_batch=given)
    assert given.given == []


def test_a_deadline_keeps_what_was_answered_and_its_name() -> None:
    asked = plan(32, batch=8, concurrency=1)
    given = Batches()
    script = FakeCompletions.of(asked, hangs_at=13)
    with serving_completions(script) as url:
        client = EngineClient(url)
        with client.deadline("check accuracy", 1.5), pytest.raises(DeadlineError) as caught:
            ask_questions(client, asked, on_batch=given)
    assert (caught.value.scope, caught.value.seconds) == ("check accuracy", 1.5)
    answered = len(given.records)
    assert str(caught.value) == f"deadline 'check accuracy' of 1.5 s passed after {answered} of 32 questions"
    # A machine too slow for twelve answers in that time is no failure; an answer that is lost is one.
    assert len(script.bodies) - answered in (0, 1)


def test_a_hanging_answer_is_not_awaited_for_ever_once_the_engine_died(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One request never comes back, another finds the engine dead: the second decides."""
    monkeypatch.setattr(harness.checks.questions, "LAST_ANSWERS_S", 0.05)
    asked = plan(4, batch=4, concurrency=4)
    release = threading.Event()

    class Client(EngineClient):
        def complete(self, prompt: str, **how: object) -> object:  # type: ignore[override]
            if prompt == asked.items[0].prompt:
                release.wait(60)
            raise EngineDiedError("gone", detail="last lines")

    with pytest.raises(EngineDiedError, match=r"^after 0 of 4 questions: gone$") as caught:
        ask_questions(Client("http://127.0.0.1:1"), asked)
    assert caught.value.detail == "last lines"
    release.set()


def test_a_bug_is_not_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[type[BaseException]] = []
    monkeypatch.setattr(threading, "excepthook", lambda hooked: told.append(hooked.exc_type))

    class Client(EngineClient):
        def complete(self, prompt: str, **how: object) -> object:  # type: ignore[override]
            raise ZeroDivisionError

    with pytest.raises(RuntimeError, match="broke off"):
        ask_questions(Client("http://127.0.0.1:1"), plan(4))
    for thread in threading.enumerate():
        if thread.name.startswith("ask-"):
            thread.join()
    assert set(told) == {ZeroDivisionError}


def test_latency_is_that_of_the_request() -> None:
    ticks = iter(range(100))
    asked = plan(3, concurrency=1)
    with serving_completions(FakeCompletions.of(asked, refused=0.5, seed=1)) as url:
        records = ask_questions(EngineClient(url), asked, clock=lambda: float(next(ticks)))
    assert [record.seconds for record in records] == [1.0, 1.0, 1.0]


def test_a_record_keeps_the_end_of_a_long_text() -> None:
    asked = plan(1)
    script = FakeCompletions(right={asked.items[0].prompt: "0" * 5000})
    with serving_completions(script) as url:
        (record,) = ask_questions(EngineClient(url), asked)
    assert record.text == "0" * TEXT_KEPT
    assert (record.answer, record.outcome) == ("0", QuestionOutcome.CORRECT)


def test_half_a_character_can_be_kept() -> None:
    asked = plan(1)
    script = FakeCompletions(right={asked.items[0].prompt: "\ud83d 7"})
    with serving_completions(script) as url:
        (record,) = ask_questions(EngineClient(url), asked)
    assert record.text.encode().endswith(b"? 7")
    assert record.answer == "7"


def test_an_engine_without_a_list_of_models_is_sent_no_model() -> None:
    asked = plan(3)
    script = FakeCompletions.of(asked, tells_models=False)
    with serving_completions(script) as url:
        ask_questions(EngineClient(url), asked)
    assert all("model" not in body for body in script.bodies)


def test_many_threads_ask_for_the_models_once() -> None:
    asked = plan(64, batch=64, concurrency=64)
    script = FakeCompletions.of(asked)
    with serving_completions(script) as url:
        ask_questions(EngineClient(url), asked)
    assert script.models_asked == 1
    assert len(script.bodies) == 64


def test_no_two_requests_share_a_connection() -> None:
    """A pool that hands connections on between threads can close one that is in use."""
    asked = plan(64, batch=32, concurrency=16)
    script = FakeCompletions.of(asked)
    with serving_completions(script) as url:
        ask_questions(EngineClient(url), asked)
    assert script.connections == 64 + script.models_asked


def test_a_refused_completion_is_a_refusal_with_its_status() -> None:
    asked = plan(1)
    script = FakeCompletions.of(asked, refused=1.0)
    with serving_completions(script) as url, pytest.raises(RequestRefusedError) as caught:
        EngineClient(url).complete(asked.items[0].prompt, max_new_tokens=1)
    assert caught.value.status == 500
