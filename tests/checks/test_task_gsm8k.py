"""GSM8K: the published file or none, its first lines as shots, prompts as upstream sends them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.checks.tasks import gsm8k, load_task
from harness.checks.tasks.base import Question
from harness.checks.tasks.datasets import Pin
from harness.checks.tasks.prompts import STOPS, few_shot_prompt
from harness.errors import SourceError, UsageError
from harness.suites.check_params import AccuracyParams

LINES = [
    {"question": "2+2?", "answer": "2+2=<<2+2=4>>4\n#### 4"},
    {"question": "How many \u2028eggs\u0085?", "answer": "many\n#### 1,234"},
    {"question": "Below zero?", "answer": "1-3=-2\n#### -2"},
]


def write(path: Path, lines: list[object]) -> Pin:
    """A file and the pin that it satisfies."""
    text = "".join(
        (line if isinstance(line, str) else json.dumps(line, ensure_ascii=False)) + "\n" for line in lines
    )
    path.write_text(text, encoding="utf-8")
    return Pin(name="GSM8K", sha256=hashlib.sha256(text.encode()).hexdigest(), elsewhere="")


def test_problems_are_the_lines_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "test.jsonl"
    pin = write(path, [*LINES])
    task = gsm8k.load(str(path), pin=pin)
    assert (task.name, task.label, task.digest, task.notes) == ("gsm8k", "GSM8K", pin.sha256, ())
    assert [q.number for q in task.problems] == [1, 2, 3]
    assert [q.expected for q in task.problems] == ["4", "1234", "-2"]
    assert [q.question for q in task.problems] == [line["question"] for line in LINES]
    assert [q.answer for q in task.problems] == [line["answer"] for line in LINES]


@pytest.mark.parametrize("shots", [0, 1, 3, 5])
def test_what_is_shown_is_never_scored(tmp_path: Path, shots: int) -> None:
    path = tmp_path / "test.jsonl"
    task = gsm8k.load(str(path), pin=write(path, [*LINES]))
    shown, scored = task.shots(shots), task.questions(shots=shots)
    assert [*shown, *scored] == list(task.problems)
    assert len(shown) == min(shots, 3)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nonsense", "a line must be"),
        ("", "a line must be"),
        ("[]", "a line must be"),
        ({"question": "?"}, "a line must be"),
        ({"question": 1, "answer": "#### 1"}, "must be texts"),
        ({"question": "?", "answer": "4"}, "must end in '#### n'"),
    ],
)
def test_a_line_of_another_shape_is_told_by_its_place(tmp_path: Path, line: object, words: str) -> None:
    path = tmp_path / "test.jsonl"
    pin = write(path, [LINES[0], line, LINES[1]])
    with pytest.raises(SourceError, match=words) as caught:
        gsm8k.load(str(path), pin=pin)
    assert str(caught.value).startswith(f"{path}:2:1: ")


def test_the_environment_names_the_file_where_a_check_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = tmp_path / "own.jsonl", tmp_path / "other.jsonl"
    pin = write(own, [*LINES])
    write(other, LINES[:1])
    monkeypatch.setenv("HARNESS_GSM8K", str(own))
    assert len(gsm8k.load(None, pin=pin).problems) == 3
    with pytest.raises(UsageError, match=r"other\.jsonl is not the published file"):
        gsm8k.load(str(other), pin=pin)


def test_without_a_word_it_is_where_openai_published_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.delenv("HARNESS_GSM8K", raising=False)
    monkeypatch.setattr(gsm8k, "read_dataset", lambda source, pin: asked.append(source) or _stop())
    with pytest.raises(StopIteration):
        gsm8k.load(None)
    assert asked == [
        "https://raw.githubusercontent.com/openai/grade-school-math/master/grade_school_math/data/test.jsonl"
    ]


def _stop() -> None:
    raise StopIteration


def test_a_check_takes_the_published_file_only(tmp_path: Path) -> None:
    path = tmp_path / "test.jsonl"
    write(path, [*LINES])
    wanted = "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14"
    with pytest.raises(UsageError, match=wanted):
        load_task(AccuracyParams(task="gsm8k", data=str(path)))


def question(number: int, text: str, answer: str) -> Question:
    return Question(number=number, question=text, answer=answer, expected="")


def test_a_prompt_has_upstreams_shape() -> None:
    shots = [question(1, "2+2?", "<<2+2=4>>4\n#### 4"), question(2, "3+3?", "#### 6")]
    assert few_shot_prompt(shots, question(3, "4+4?", "#### 8")) == (
        "Question: 2+2?\nAnswer: <<2+2=4>>4\n#### 4\n\nQuestion: 3+3?\nAnswer: #### 6\n\nQuestion: 4+4?\nAnswer:"
    )
    assert few_shot_prompt([], question(3, "4+4?", "#### 8")) == "Question: 4+4?\nAnswer:"
    assert STOPS == ("Question", "Assistant:", "<|separator|>")


@given(st.lists(st.tuples(st.text(), st.text()), max_size=4), st.text())
def test_a_prompt_never_holds_its_own_answer(shots: list[tuple[str, str]], text: str) -> None:
    shown = [question(i, *shot) for i, shot in enumerate(shots)]
    one, other = question(9, text, "#### 1"), question(9, text, "#### 2")
    prompt = few_shot_prompt(shown, one)
    assert prompt == few_shot_prompt(shown, other)
    assert prompt.endswith(f"Question: {text}\nAnswer:")
