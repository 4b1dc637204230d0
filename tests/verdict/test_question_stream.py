"""The lines by which question records travel: lossless, and loud about anything else."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.verdict import (
    AskedQuestion,
    QuestionOutcome,
    QuestionRecord,
    QuestionRole,
    decode_question,
    encode_questions,
)

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
RECORDS = st.builds(
    QuestionRecord,
    question=st.integers(1, 2**63 - 1),
    prompt_hash=TEXT,
    outcome=st.sampled_from(QuestionOutcome),
    expected=TEXT,
    answer=st.none() | TEXT,
    text=TEXT,
    tokens=st.integers(0, 2**40),
    finish_reason=TEXT,
    seconds=st.floats(0, 1e6),
    error=TEXT,
)
LINE = {
    "check": "accuracy",
    "role": "engine",
    "question": 7,
    "prompt_hash": "ab",
    "outcome": "wrong",
    "expected": "42",
    "answer": None,
    "text": "",
    "tokens": 3,
    "finish_reason": "stop",
    "seconds": 0.5,
    "error": "",
}


@given(records=st.lists(RECORDS, max_size=4), role=st.sampled_from(QuestionRole), check=TEXT)
def test_a_batch_comes_back_line_by_line(records, role, check):
    *lines, rest = encode_questions(check, role, records).split(b"\n")
    assert rest == b""
    assert [decode_question(line) for line in lines] == [
        AskedQuestion(check=check, role=role, record=record) for record in records
    ]


def test_bytes_that_were_no_text_can_be_stored():
    read = decode_question(json.dumps(LINE | {"text": "caf\udce9"}).encode())
    assert read.record.text == "caf?"


JSON = st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.lists(st.integers(), max_size=1)


@given(field=st.sampled_from(sorted(LINE)), value=JSON)
@example(field="question", value=2**63)
@example(field="tokens", value=True)
@example(field="seconds", value=math.inf)
@example(field="check", value=None)
def test_a_field_of_another_shape_is_refused_or_fits_its_column(field, value):
    try:
        read = decode_question(json.dumps(LINE | {field: value}).encode())
    except (ValueError, LookupError, TypeError):
        return
    record = read.record
    assert type(record.question) is int
    assert type(record.tokens) is int
    assert max(record.question, record.tokens) < 2**63
    assert math.isfinite(record.seconds)
    texts = [read.check, record.prompt_hash, record.expected, record.text, record.finish_reason, record.error]
    assert all(isinstance(text, str) for text in [*texts, record.answer or ""])


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b"\xff",
        json.dumps(LINE | {"more": 1}).encode(),
        json.dumps(LINE).encode()[:-9],
    ],
)
def test_another_line_is_refused(line):
    with pytest.raises((ValueError, LookupError, TypeError)):
        decode_question(line)


@pytest.mark.parametrize("missing", ["check", "role", "question", "prompt_hash", "outcome", "expected"])
def test_a_line_without_what_identifies_it_is_refused(missing):
    with pytest.raises((LookupError, TypeError)):
        decode_question(json.dumps({name: value for name, value in LINE.items() if name != missing}).encode())
