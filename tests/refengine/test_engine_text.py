"""The growing text of an answer against decoding and searching the whole at once."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.refengine.front.text import AnswerText
from harness.refengine.tokenizer import StreamDecoder

# Few distinct bytes, so that stop strings and unfinished characters really occur.
TOKENS = st.lists(st.sampled_from([97, 98, 0xC3, 0xA9, 0xE2, 0x82, 0xAC, 256]), max_size=14)
STOPS = st.lists(st.text(alphabet="ab€é", min_size=1, max_size=4), max_size=3)


def whole(tokens: list[int]) -> str:
    return bytes(token for token in tokens if token < 256).decode("utf-8", errors="replace")


@settings(max_examples=150, deadline=None)
@given(tokens=TOKENS, stops=STOPS)
def test_text_only_grows_and_ends_as_the_whole(tokens: list[int], stops: list[str]) -> None:
    answer = AnswerText(StreamDecoder(), stops)
    shown = [answer.text]
    pushed = 0
    for token in tokens:
        if answer.matched is not None:
            break
        answer.push(token)
        pushed += 1
        shown.append(answer.text)
    answer.finish()
    shown.append(answer.text)
    assert all(later.startswith(earlier) for earlier, later in pairwise(shown))
    text = whole(tokens[:pushed])
    first = min((text.find(stop) for stop in stops if stop in text), default=None)
    assert answer.text == (text if first is None else text[:first])
    assert (answer.matched is not None) == (first is not None)


def test_no_character_is_shown_before_its_last_byte() -> None:
    answer = AnswerText(StreamDecoder())
    seen = []
    for token in "a€é".encode():
        answer.push(token)
        seen.append(answer.text)
    assert seen == ["a", "a", "a", "a€", "a€", "a€é"]


def test_the_beginning_of_a_stop_string_is_held_back_until_it_is_none() -> None:
    answer = AnswerText(StreamDecoder(), ["abc"])
    for token in b"xab":
        answer.push(token)
    assert answer.text == "x"
    answer.push(ord("d"))
    assert answer.text == "xabd"


@pytest.mark.parametrize("tail", [b"ab", b"\xe2\x82"])
def test_the_end_shows_what_was_held_back(tail: bytes) -> None:
    answer = AnswerText(StreamDecoder(), ["abc"])
    for token in b"x" + tail:
        answer.push(token)
    assert answer.text == "x"
    answer.finish()
    assert answer.text == "x" + tail.decode(errors="replace")
