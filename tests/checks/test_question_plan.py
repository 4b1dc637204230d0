"""The plan of what is asked: a fixed random order, whole prompts, and a digest that misses nothing."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

import harness.checks.questions
from harness.checks.questions import QuestionPlan, make_plan
from harness.checks.tasks.base import Question, Task
from harness.errors import UsageError
from harness.suites.check_params import AccuracyParams


@dataclass(frozen=True, kw_only=True)
class Toy:
    """A task of so many questions, the first of which are its shots."""

    size: int
    name: str = "sums"
    label: str = "toy"
    digest: str = "d" * 64
    notes: tuple[str, ...] = ("read from afar",)

    def shots(self, count: int) -> tuple[Question, ...]:
        return self._all()[:count]

    def questions(self, *, shots: int) -> tuple[Question, ...]:
        return self._all()[shots:]

    def _all(self) -> tuple[Question, ...]:
        return tuple(
            Question(number=n, question=f"{n}+{n}?", answer=f"#### {2 * n}", expected=str(2 * n))
            for n in range(1, self.size + 1)
        )


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    def use(size: int) -> None:
        task: Task = Toy(size=size)
        monkeypatch.setattr(harness.checks.questions, "load_task", lambda params: task)

    use(1319)
    return use


def plan(**params: Any) -> QuestionPlan:
    return make_plan(AccuracyParams(**{"task": "sums", **params}))


def numbers(made: QuestionPlan) -> list[int]:
    return [item.number for item in made.items]


def test_the_first_stage_is_a_sample_and_not_a_beginning(toy: Any) -> None:
    first = numbers(plan(questions=200))
    assert len(set(first)) == 200
    assert min(first) > 5  # five shots
    # A sorted prefix would end at 205; the mean of a sample of 200 is within five standard errors of the middle.
    assert abs(sum(first) / 200 - (6 + 1319) / 2) < 5 * 381 / 200**0.5


def test_the_second_stage_begins_with_the_first(toy: Any) -> None:
    both = plan(questions=200, escalate=1319)
    assert numbers(both)[:200] == numbers(plan(questions=200))
    assert sorted(numbers(both)) == list(range(6, 1320))


def test_fewer_questions_than_wanted_are_all_taken_and_told(toy: Any) -> None:
    assert (len(plan(questions=1319).items), plan(questions=1319).short_by) == (1314, 5)
    assert (len(plan(questions=200, escalate=1400).items), plan(questions=200, escalate=1400).short_by) == (
        1314,
        86,
    )
    assert plan(questions=1314).short_by == 0
    toy(5)
    with pytest.raises(UsageError, match="toy: 5 shots leave no question to score"):
        plan()


def test_order_depends_on_the_seed_and_on_nothing_else(toy: Any) -> None:
    same = plan(questions=50, batch=8, concurrency=1, max_new_tokens=7)
    assert numbers(same) == numbers(plan(questions=50))
    assert numbers(same) != numbers(plan(questions=50, seed=1))
    assert sorted(numbers(plan(questions=1319))) == sorted(numbers(plan(questions=1319, seed=1)))


def test_order_is_the_same_in_every_process() -> None:
    """String hashes differ between processes; nothing may depend on them."""
    script = (
        "from harness.checks.questions import make_plan;"
        "from harness.suites.check_params import AccuracyParams;"
        "print(make_plan(AccuracyParams(task='sums', questions=30)).digest_of_questions)"
    )
    told = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout
    assert told == plan(questions=30).digest_of_questions + "\n"


def test_a_prompt_holds_the_shots_and_its_question(toy: Any) -> None:
    made = plan(questions=3, shots=2)
    item = made.items[0]
    assert item.prompt == (
        "Question: 1+1?\nAnswer: #### 2\n\nQuestion: 2+2?\nAnswer: #### 4\n\n"
        f"Question: {item.number}+{item.number}?\nAnswer:"
    )
    assert item.expected == str(2 * item.number)
    assert item.prompt_hash == hashlib.sha256(item.prompt.encode()).hexdigest()[:16]
    assert (made.task, made.label, made.digest, made.notes) == ("sums", "toy", "d" * 64, ("read from afar",))
    assert (made.shots, made.batch, made.concurrency, made.max_new_tokens) == (2, 64, 64, 512)
    assert made.stop == ("Question", "Assistant:", "<|separator|>")


def test_a_part_is_the_same_plan_with_fewer_questions(toy: Any) -> None:
    made = plan(questions=20)
    part = made.part(5, 10)
    assert part.items == made.items[5:10]
    assert replace(part, items=made.items) == made
    assert hash(part) != hash(made)
    assert made.part(0, 20) == made


def test_the_digest_tells_apart_all_that_decides_a_score(toy: Any) -> None:
    made = plan(questions=20)
    item = made.items[0]
    others = [
        made.part(0, 19),
        replace(made, items=made.items[::-1]),
        replace(made, items=(replace(item, prompt=item.prompt + " "), *made.items[1:])),
        replace(made, items=(replace(item, expected="1"), *made.items[1:])),
        replace(made, max_new_tokens=511),
        replace(made, stop=()),
        replace(made, task="gsm8k"),
    ]
    digests = {made.digest_of_questions, *(other.digest_of_questions for other in others)}
    assert len(digests) == len(others) + 1
    assert replace(made, batch=1, concurrency=1, notes=()).digest_of_questions == made.digest_of_questions


def test_another_answer_rule_is_another_question_set(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = plan(questions=2)
    monkeypatch.setattr(harness.checks.questions, "ANSWER_RULE", "answers 2")
    after = plan(questions=2)
    assert before.asked != after.asked
    monkeypatch.undo()
    assert replace(after, asked="").items == replace(before, asked="").items


def test_how_questions_are_asked_has_a_name_whichever_they_are(toy: Any) -> None:
    assert plan(questions=20).asked == plan(questions=200, batch=7).asked
    assert plan(shots=4).asked != plan(shots=5).asked
    assert plan(questions=20).asked != plan(questions=20, seed=3).asked


def test_both_tasks_make_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(plan(questions=4).items) == 4
    assert plan(questions=4).label == "sums (synthetic, not GSM8K)"
