"""What crosses the pipes: frames cut anywhere, messages and control messages there and back, the wiring."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.refengine.config import CommBackend, EngineConfig, StartMethod
from harness.refengine.frames import FrameDecoder, encode_frame
from harness.refengine.requests import (
    Abort,
    Begin,
    Bound,
    Control,
    GenerateRequest,
    Handover,
    Message,
    Query,
    QueryKind,
    Release,
    message_from_dict,
    message_to_dict,
)
from harness.refengine.wiring import Wiring

MESSAGES: list[Message] = [
    GenerateRequest(
        rid="é\n", tokens=(256, 0, 7), max_new_tokens=3, temperature=0.5, seed=2**62, logprob_start=1
    ),
    GenerateRequest(rid="p", tokens=(1,), max_new_tokens=3, handover=Handover(room=2**63 - 1)),
    GenerateRequest(
        rid="d", tokens=(1,), max_new_tokens=3, handover=Handover(room=0, peer={"host": "h", "ports": [1]})
    ),
    Abort(rid="x", why="its client has gone"),
    Bound(rid="x"),
    Release(rid="x"),
    Begin(rid="x", first={"token": 3, "logprob": float("-inf"), "top": [[-1.0, 2]]}),
    Query(id=4, kind=QueryKind.ROWS),
]


@settings(max_examples=40, deadline=None)
@given(
    bodies=st.lists(st.dictionaries(st.text(max_size=5), st.integers(), max_size=3), max_size=6),
    cuts=st.lists(st.integers(1, 9), min_size=1, max_size=8),
)
def test_frames_survive_any_cut(bodies: list[dict[str, int]], cuts: list[int]) -> None:
    data = b"".join(encode_frame(body) for body in bodies)
    decoder, found, place, turn = FrameDecoder(), [], 0, 0
    while place < len(data):
        size = cuts[turn % len(cuts)]
        found += decoder.feed(data[place : place + size])
        place, turn = place + size, turn + 1
    assert found == bodies


def test_a_length_out_of_bounds_is_told_instead_of_waited_for() -> None:
    with pytest.raises(ValueError, match="a frame of 4294967295 bytes"):
        FrameDecoder().feed(b"\xff\xff\xff\xff")


@pytest.mark.parametrize("message", MESSAGES, ids=str)
def test_messages_come_back(message: Message) -> None:
    assert message_from_dict(message_to_dict(message)) == message


def test_control_comes_back() -> None:
    control = Control(sampled={"a": 3}, messages=tuple(MESSAGES))
    assert Control.from_bytes(control.to_bytes()) == control


def test_wiring_comes_back() -> None:
    config = EngineConfig(tp=2, dcp=2, comm=CommBackend.GLOO, start_method=StartMethod.SPAWN)
    wiring = Wiring(
        config=config, parent=1, launcher=2, pipes=(3, 4), status=5, entry=("a", "b"), plumbing=(6,)
    )
    assert Wiring.from_argv(wiring.to_argv()) == wiring


def test_a_process_started_by_hand_says_how_to_start_the_engine() -> None:
    with pytest.raises(UsageError, match="harness engine serve"):
        Wiring.from_argv(["--port", "1"])
