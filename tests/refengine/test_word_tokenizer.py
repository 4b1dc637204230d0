"""Words and bytes to text and back, whole and in streams, whatever the words are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.refengine.tokenizer import BOS_ID, EOS_ID
from harness.refengine.word_tokenizer import WordTokenizer

WORDS = [" apples", "Question", " = ", "\n\n", "é", " apple", "a"]
# Few letters, so that words are met, overlap and are cut short.
NEAR_WORDS = st.text(" aples=Question\né\x00")
VOCABULARIES = st.lists(st.text("ab é", min_size=1, max_size=4), unique=True, max_size=8)


@given(st.one_of(st.text(), NEAR_WORDS))
def test_text_comes_back(text: str) -> None:
    tokenizer = WordTokenizer(WORDS)
    tokens = tokenizer.encode(text)
    assert tokens[0] == BOS_ID
    assert all(0 <= token < tokenizer.vocab_size for token in tokens)
    assert tokenizer.decode(tokens) == text


@given(VOCABULARIES, st.text("ab é€"))
def test_text_comes_back_with_any_words(words: list[str], text: str) -> None:
    tokenizer = WordTokenizer(words)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(st.lists(st.integers(0, 257 + len(WORDS))))
def test_a_stream_joins_to_the_whole(tokens: list[int]) -> None:
    tokenizer = WordTokenizer(WORDS)
    stream = tokenizer.stream()
    pieces = [stream.push(token) for token in tokens]
    assert "".join([*pieces, stream.finish()]) == tokenizer.decode(tokens)


def test_the_longest_word_wins_and_digits_stay_alone() -> None:
    tokenizer = WordTokenizer(WORDS)
    first = 258
    assert tokenizer.encode("12 = 3 apples") == [
        BOS_ID, ord("1"), ord("2"), first + 2, ord("3"), first,
    ]  # fmt: skip
    assert tokenizer.encode(" apple")[1:] == [first + 5]
    assert tokenizer.encode("a")[1:] == [first + 6]


def test_words_are_taken_literally() -> None:
    tokenizer = WordTokenizer([".*", "(", "\\d"])
    assert tokenizer.encode("x(.*")[1:] == [ord("x"), 259, 258]
    assert tokenizer.encode("7")[1:] == [ord("7")]


def test_without_words_it_is_the_byte_tokenizer() -> None:
    tokenizer = WordTokenizer([])
    assert tokenizer.vocab_size == 258
    assert tokenizer.encode("hé\n") == [BOS_ID, *"hé\n".encode()]


def test_a_stream_never_shows_half_a_character() -> None:
    stream = WordTokenizer(WORDS).stream()
    assert [stream.push(byte) for byte in "ü ".encode()] == ["", "ü", " "]
    assert stream.push("€".encode()[0]) == ""
    assert stream.in_character
    assert stream.finish() == "�"


def test_marks_and_lone_surrogates_do_no_harm() -> None:
    tokenizer = WordTokenizer(WORDS)
    assert tokenizer.decode([BOS_ID, 104, 258, EOS_ID]) == "h apples"
    assert tokenizer.decode(tokenizer.encode("x\ud800b")) == "x?b"


@pytest.mark.parametrize("words", [["a", "b", "a"], ["a", ""]])
def test_empty_and_repeated_words_are_refused(words: list[str]) -> None:
    with pytest.raises(UsageError, match="distinct and not empty"):
        WordTokenizer(words)
