"""Bytes to text and back, whole and in streams."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.refengine.tokenizer import BOS_ID, EOS_ID, StreamDecoder, check_tokens, decode, encode


@given(st.text())
def test_text_comes_back(text: str) -> None:
    tokens = encode(text)
    assert tokens[0] == BOS_ID
    assert decode(tokens) == text
    check_tokens(tokens)


@given(st.lists(st.integers(0, EOS_ID)))
def test_a_stream_joins_to_the_whole(tokens: list[int]) -> None:
    stream = StreamDecoder()
    pieces = [stream.push(token) for token in tokens]
    assert "".join([*pieces, stream.finish()]) == decode(tokens)


def test_a_stream_never_shows_half_a_character() -> None:
    stream = StreamDecoder()
    assert [stream.push(byte) for byte in "é!".encode()] == ["", "é", "!"]


def test_marks_and_lone_surrogates_do_no_harm() -> None:
    assert decode([BOS_ID, 104, 105, EOS_ID]) == "hi"
    assert decode(encode("a\ud800b")) == "a?b"


@pytest.mark.parametrize(
    ("tokens", "said"), [([], "no tokens"), ([1, 258], "token 258 at place 1"), ([-1], "-1")]
)
def test_ids_outside_the_vocabulary_are_named(tokens: list[int], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_tokens(tokens)
