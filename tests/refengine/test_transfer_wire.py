"""Messages between ranks: all survive the wire, and nothing else is taken for one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.refengine.transfer.rooms import Reasons
from harness.refengine.transfer.wire import (
    Block,
    Cancel,
    Credit,
    Done,
    End,
    Hello,
    Message,
    Refuse,
    Register,
    WireError,
    decode,
    encode,
)

ROOMS = st.integers(0, 2**63 - 1)
COUNTS = st.integers(0, 2**40)
OBJECTS = st.dictionaries(
    st.text(),
    st.integers(-(2**63), 2**63 - 1) | st.text() | st.none() | st.lists(st.floats(allow_nan=False)),
    max_size=3,
)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(Hello, nonce=st.text(), tp_rank=COUNTS, shape=OBJECTS, offer=OBJECTS),
    st.builds(Refuse, why=st.text()),
    st.builds(Register, room=ROOMS, prompt_len=COUNTS),
    st.builds(Block, room=ROOMS, slot=COUNTS, rows=COUNTS, size=COUNTS),
    st.builds(Credit, slot=COUNTS),
    st.builds(End, room=ROOMS, rows=COUNTS, first=st.none() | OBJECTS),
    st.builds(Done, room=ROOMS),
    st.builds(Cancel, room=ROOMS, why=st.text()),
)


@given(message=MESSAGES)
def test_what_is_said_is_heard(message: Message) -> None:
    assert decode(encode(message)) == message


@given(frame=st.binary())
def test_noise_is_no_message(frame: bytes) -> None:
    with pytest.raises(WireError):
        decode(frame)


@given(message=MESSAGES, data=st.data())
def test_a_message_with_another_field_is_none(message: Message, data: st.DataObject) -> None:
    values = json.loads(encode(message))
    name = data.draw(st.sampled_from(sorted(values)))
    without = {key: value for key, value in values.items() if key != name}
    odd: list[dict[str, Any]] = [
        without,
        {**values, "extra": 1},
        {**values, name: [1]},
        {**values, name: True},
        {**values, name: -1},
    ]
    for changed in odd:
        with pytest.raises(WireError):
            decode(json.dumps(changed).encode())


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (b"{", "a message of 1 bytes is no JSON"),
        (b"\xff\xfe\xff", "a message of 3 bytes is no JSON"),
        (b"[1]", "a message is no object with a type: [1]"),
        (
            b'{"type": "hush"}',
            "of no known type; known: hello, refuse, register, block, credit, end, done, cancel",
        ),
        (b'{"type": "done"}', r"Done has the fields []; expected ['room']"),
        (b'{"type": "done", "room": 1.5}', "Done.room is 1.5"),
    ],
)
def test_an_odd_message_is_told_as_what_it_is(frame: bytes, message: str) -> None:
    with pytest.raises(WireError) as raised:
        decode(frame)
    assert message in str(raised.value)


@given(rooms=st.lists(st.integers(0, 9), max_size=40), limit=st.integers(1, 5))
def test_the_last_reasons_are_remembered(rooms: list[int], limit: int) -> None:
    reasons = Reasons(limit)
    for nth, room in enumerate(rooms):
        reasons.note(room, str(nth))
    last_use = {room: str(nth) for nth, room in enumerate(rooms)}
    latest = sorted(last_use, key=lambda room: int(last_use[room]))[-limit:]
    assert {room: reasons.get(room) for room in range(10)} == {
        room: last_use[room] if room in latest else None for room in range(10)
    }
