"""`harness show --questions`: what is looked for comes first, and an engine's words cannot harm a terminal."""

from __future__ import annotations

import json
import random

from harness.ledger import AttemptQuestions
from harness.report import QUESTION_COLUMNS, question_tables, questions_json
from harness.verdict import AskedQuestion, QuestionOutcome, QuestionRecord, QuestionRole


def asked(number: int, outcome: str, role: str = "engine", **others: object) -> AskedQuestion:
    answers = {"correct": "42", "wrong": "41"}
    values = {"answer": answers.get(outcome), "tokens": 9, "finish_reason": "stop", "seconds": 0.5, **others}
    record = QuestionRecord(
        question=number, prompt_hash="ab", outcome=QuestionOutcome(outcome), expected="42", **values
    )
    return AskedQuestion(check="accuracy", role=QuestionRole(role), record=record)


ASKED = [
    asked(1, "correct"),
    asked(2, "wrong"),
    asked(3, "wrong"),
    asked(4, "correct"),
    asked(5, "truncated", finish_reason="length"),
    asked(6, "error", error="status 500: cosmic ray"),
    *(asked(number, "correct", "baseline") for number in (1, 2, 5, 6)),
    *(asked(number, "wrong", "baseline") for number in (3, 4)),
    asked(1, "correct", "baseline-again"),
]


def test_flips_come_first_then_what_is_not_right_and_the_rest_is_counted() -> None:
    for seed in range(4):
        shuffled = list(ASKED)
        random.Random(seed).shuffle(shuffled)
        (table,) = question_tables(shuffled, everything=False)
        assert [row[:5] for row in table.rows] == [
            ("2", "wrong (flip)", "42", "42", "41"),
            ("4", "correct (flip)", "42", "41", "42"),
            ("3", "wrong", "42", "41", "41"),
            ("5", "truncated", "42", "42", "truncated"),
            ("6", "error: status 500: cosmic ray", "42", "42", "error"),
        ]
        assert table.hidden == 1
        assert table.headline == (
            "engine: 2 correct, 2 wrong, 1 truncated, 1 error of 6; baseline: 4 correct, 2 wrong of 6; 2 flips; "
            "baseline asked again: 1"
        )
    assert len(QUESTION_COLUMNS) == len(table.rows[0])


def test_all_of_them_end_with_the_calm_ones() -> None:
    (table,) = question_tables(ASKED, everything=True)
    assert [row[0] for row in table.rows] == ["2", "4", "3", "5", "6", "1"]
    assert table.hidden == 0


def test_a_question_that_one_of_them_was_not_asked_has_no_flip() -> None:
    (table,) = question_tables([asked(1, "wrong", "baseline"), asked(2, "wrong")], everything=False)
    assert [row[:5] for row in table.rows] == [
        ("1", "not asked", "42", "41", "-"),
        ("2", "wrong", "42", "-", "41"),
    ]
    assert "0 flips" in table.headline


def test_without_a_baseline_the_engine_stands_alone() -> None:
    (table,) = question_tables([asked(1, "correct")], everything=False)
    assert (table.rows, table.hidden, table.headline) == ((), 1, "engine: 1 correct of 1")


def test_two_checks_have_two_tables() -> None:
    other = AskedQuestion(check="other", role=QuestionRole.ENGINE, record=asked(1, "wrong").record)
    tables = question_tables([other, asked(1, "wrong"), other], everything=False)
    assert [table.check for table in tables] == ["accuracy", "other"]


def test_control_characters_of_an_engine_are_shown_and_not_sent() -> None:
    nasty = {"answer": "\x1b[31m4", "finish_reason": "st\x07op", "error": "\x1b[2J"}
    (table,) = question_tables([asked(1, "error", **nasty)], everything=False)
    assert not any("\x1b" in cell or "\x07" in cell for cell in table.rows[0])


def test_json_holds_every_record_whole() -> None:
    found = AttemptQuestions(n=2, asked=tuple(ASKED))
    read = json.loads(json.dumps(questions_json(found)))
    assert len(read) == len(ASKED)
    assert read[5] == {"check": "accuracy", "role": "engine", **ASKED[5].record.to_json()}
