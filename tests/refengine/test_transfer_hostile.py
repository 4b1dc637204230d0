"""Whatever comes over a transfer port or from one: both ends live on, and serve those who make sense."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest
import zmq
from hypothesis import example, given, settings
from hypothesis import strategies as st
from odd_json import ODD_TEXTS, changed, frames
from transfer_world import (
    FIRST,
    PATIENCE_S,
    RAW_LENGTH,
    ROW_BYTES,
    TRANSPORTS,
    DecodeRank,
    RawDecodeRank,
    RawPrefillRank,
    World,
    arrived,
    raw_prefill_rank,
    small,
)

from harness.errors import UsageError
from harness.refengine.transfer.events import Bound, Failed, PeerInfo
from harness.refengine.transfer.first_token import odd_in_first
from harness.refengine.transfer.handshake import EngineShape
from harness.refengine.transfer.sender import MAX_TOLD_BYTES
from harness.refengine.transfer.told import MAX_DEPTH, require_plain
from harness.refengine.transfer.transports import Transport, TransportError, make_transport
from harness.refengine.transfer.transports.base import SlotSizes
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

PREFILL, DECODE = (DecodeRank(config, 0, 4).shape for config in small())
OFFER = {"slots": 4, "slot_bytes": 1 << 16}
HELLO = Hello(nonce="launched", tp_rank=0, shape=DECODE.to_dict(), offer=OFFER)
# Rooms that no test opens.
UNKNOWN = 10**6


def as_told(*messages: Message) -> list[dict[str, Any]]:
    return [json.loads(encode(message)) for message in messages]


FROM_DECODE = frames(
    *as_told(
        HELLO,
        Register(room=UNKNOWN, prompt_len=8),
        Credit(slot=0),
        Done(room=UNKNOWN),
        Cancel(room=UNKNOWN, why="enough"),
    )
)
FROM_PREFILL = frames(
    *as_told(
        Refuse(why="go away"),
        Block(room=1, slot=0, rows=1, size=ROW_BYTES),
        End(
            room=1,
            rows=RAW_LENGTH,
            first={**FIRST, "prompt_logprobs": [None, -1.0], "prompt_top": [None, [[-1.0, 3]]]},
        ),
        Cancel(room=1, why="enough"),
    )
)


@given(frame=FROM_DECODE | FROM_PREFILL)
@example(frame=b'{"type":"cancel","room":1,"why":"\xed\xa0\x80"}')
@example(frame=b'{"type":"cancel","room":1,"why":"\\ud800"}')
@example(frame=b'{"type":"done","room":18446744073709551616}')
@example(frame=b'{"type":"credit","slot":' + b"9" * 5000 + b"}")
def test_a_frame_is_a_message_that_can_be_told_on_or_an_error(frame: bytes) -> None:
    try:
        message = decode(frame)
    except WireError as error:
        assert str(error).encode()
    else:
        assert decode(encode(message)) == message or "NaN" in frame.decode()
        # As a front tells it on.
        json.dumps(asdict(message), ensure_ascii=False).encode()
        assert all(-(2**63) <= number < 2**63 for number in numbers(asdict(message)))


def numbers(value: Any) -> Iterator[int]:
    """All whole ones at any depth."""
    if isinstance(value, int):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from numbers(part)


@given(levels=st.integers(1, 3 * MAX_DEPTH), keys=st.lists(st.booleans(), min_size=3 * MAX_DEPTH))
def test_values_may_nest_so_deep_and_no_deeper(levels: int, keys: list[bool]) -> None:
    told: object = []
    for nth in range(levels - 1):
        told = {"a": told} if keys[nth] else [told]
    if levels <= MAX_DEPTH:
        require_plain("it", told)
    else:
        with pytest.raises(UsageError, match=f"it nests deeper than {MAX_DEPTH} levels"):
            require_plain("it", told)


@pytest.fixture(scope="module")
def prefill() -> Iterator[World]:
    with World(*small()) as world:
        yield world


rooms = itertools.count(1)


@settings(max_examples=150, deadline=None)
@given(greeted=st.booleans(), said=st.lists(st.lists(FROM_DECODE, min_size=1, max_size=2), max_size=4))
@example(greeted=False, said=[[b"[" * 50_000]])
@example(greeted=True, said=[[b"[" * 50_000], [b'{"a":' * 990 + b"1" + b"}" * 990]])
def test_a_prefill_rank_outlives_whatever_it_is_told(
    prefill: World, greeted: bool, said: list[list[bytes]]
) -> None:
    with zmq.Context() as context:
        odd, sane = (RawDecodeRank(context, prefill.peer, DECODE) for _ in range(2))
        if greeted:
            odd.say(HELLO)
        for message in said:
            odd.socket.send_multipart(message)
        # The answer to the last is there: all else has been heard.
        odd.socket.send(b"?")
        while not isinstance(odd.hears(), Refuse):
            pass
        room = next(rooms)
        sane.greet()
        sane.say(Register(room=room, prompt_len=8))
        sender = prefill.prefill[0].sender
        sender.open(f"r{room}", room=room, prompt_len=8)
        assert prefill.prefill[0].hears() == Bound(f"r{room}")
        sender.drop(f"r{room}")
        odd.socket.close()
        sane.socket.close()


def test_a_message_that_is_too_large_ends_its_connection_only(prefill: World) -> None:
    rank = prefill.prefill[0]
    with zmq.Context() as context:
        large, sane = (RawDecodeRank(context, prefill.peer, DECODE) for _ in range(2))
        for raw, room in ((large, 98), (sane, 99)):
            raw.greet()
            raw.say(Register(room=UNKNOWN + room, prompt_len=8))
            rank.sender.open(f"r{room}", room=UNKNOWN + room, prompt_len=8)
            assert rank.hears() == Bound(f"r{room}")
        large.socket.send(bytes(MAX_TOLD_BYTES + 1))
        assert rank.hears() == Failed("r98", "decode rank 0 has ended or cannot be reached any more")
        assert rank.sender.stats()["open"] == 1
        rank.sender.drop("r99")
        large.socket.close()
        sane.socket.close()


@pytest.fixture(scope="module")
def decode_rank() -> Iterator[RawPrefillRank]:
    with raw_prefill_rank() as raw:
        yield raw


PAYLOADS = st.lists(st.binary(max_size=8) | st.just(bytes(ROW_BYTES)), max_size=2)


@settings(max_examples=150, deadline=None)
@given(said=st.lists(st.tuples(FROM_PREFILL, PAYLOADS), min_size=1, max_size=4))
@example(said=[(b"[" * 50_000, [])])
@example(said=[(encode(Block(room=1, slot=0, rows=1, size=ROW_BYTES)), [bytes(ROW_BYTES)])])
def test_a_decode_rank_outlives_whatever_it_is_told(
    decode_rank: RawPrefillRank, said: list[tuple[bytes, list[bytes]]]
) -> None:
    rank = decode_rank.decode
    decode_rank.expect("odd", room=1)
    # Fails with the connection, and not before.
    decode_rank.expect("last", room=UNKNOWN)
    for frame, payload in said:
        decode_rank.router.send_multipart([decode_rank.identity, frame, *payload])
    decode_rank.say(Refuse(why="that was all"))
    ended = [rank.hears() for _ in range(2)]
    assert {(type(event), event.rid) for event in ended} == {(Failed, "odd"), (Failed, "last")}
    rank.free([2])
    decode_rank.expect("sane", room=2)
    decode_rank.say(*decode_rank.block(0, RAW_LENGTH, room=2))
    decode_rank.say(End(room=2, rows=RAW_LENGTH, first=FIRST))
    assert rank.hears() == arrived("sane")
    rank.assert_holds([(decode_rank.prompt, (2,), 5)])
    rank.free([2])


@pytest.fixture(scope="module", params=TRANSPORTS)
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[Transport, Transport]]:
    """A receiving and a sending one."""
    both = make_transport(request.param), make_transport(request.param)
    yield both
    for transport in both:
        transport.close()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_an_offer_is_reached_or_refused(ends: tuple[Transport, Transport], data: st.DataObject) -> None:
    receiver, sender = ends
    window = receiver.window(SlotSizes(slots=2, slot_bytes=64))
    (told,) = as_told(Hello(nonce="", tp_rank=0, shape={}, offer=window.offer))
    try:
        hello = decode(data.draw(changed(told)))
        assert isinstance(hello, Hello)
        sender.writer(hello.offer).close()
    except (WireError, TransportError):
        pass
    finally:
        window.close()


# As asked for with two alternatives to each token.
FULL = {
    **FIRST,
    "rid": "r",
    "finish": None,
    "prompt_logprobs": [None, *[-1.5] * (RAW_LENGTH - 1)],
    "prompt_top": [None, *[[[-0.5, 3], [-1.5, 4]]] * (RAW_LENGTH - 1)],
}


@given(frame=changed({"first": FULL}))
@example(frame=json.dumps({"first": {**FULL, "prompt_logprobs": [], "prompt_top": []}}).encode())
@example(frame=json.dumps({"first": {**FULL, "prompt_top": [None]}}).encode())
@example(frame=json.dumps({"first": {**FIRST, "prompt_logprobs": FULL["prompt_logprobs"]}}).encode())
@example(frame=json.dumps({"first": {**FULL, "token": -1}}).encode())
@example(frame=json.dumps({"first": {**FULL, "top": [[-1.0]]}}).encode())
def test_a_first_token_that_passes_can_be_answered(frame: bytes) -> None:
    """As a front does that scores a prompt, from what only has the form of a message."""
    try:
        first = json.loads(frame).get("first")
        require_plain("a message", first)
    except (ValueError, RecursionError, UsageError):
        return
    if not isinstance(first, dict) or odd_in_first(first, RAW_LENGTH) is not None:
        return
    scored = [(first["token"], first["logprob"], first["top"])]
    if "prompt_logprobs" in first:
        tokens = range(RAW_LENGTH)
        scored += list(zip(tokens, first["prompt_logprobs"], first["prompt_top"], strict=True))
    for token, logprob, top in scored:
        assert token >= 0
        assert logprob is None or isinstance(float(logprob), float)
        assert all(int(other) >= 0 and isinstance(float(each), float) for each, other in top or ())


def test_what_an_engine_tells_passes() -> None:
    assert odd_in_first(FIRST, RAW_LENGTH) is None
    assert odd_in_first(FULL, RAW_LENGTH) is None
    assert odd_in_first({**FIRST, "logprob": float("-inf")}, RAW_LENGTH) is None


@pytest.mark.parametrize(
    ("first", "odd"), [(None, "token"), ({"token": 3}, "logprob"), ({**FIRST, "top": None}, "top")]
)
def test_a_request_without_a_usable_first_token_fails(
    decode_rank: RawPrefillRank, first: dict[str, Any] | None, odd: str
) -> None:
    decode_rank.expect()
    decode_rank.say(*decode_rank.block(0, RAW_LENGTH))
    decode_rank.say(End(room=1, rows=RAW_LENGTH, first=first))
    why = f"prefill rank 0 told a first token whose {odd} makes no sense"
    assert decode_rank.decode.hears() == Failed("r", why)
    decode_rank.decode.free([2])


PEER = PeerInfo(host="127.0.0.1", shape=PREFILL, ports=(1,), nonce="n").to_dict()


@given(text=changed(PEER) | ODD_TEXTS.map(str.encode))
def test_a_peer_is_understood_or_refused(text: bytes) -> None:
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return
    try:
        peer = PeerInfo.from_dict(told)
    except UsageError as error:
        assert str(error).encode()
    else:
        assert PeerInfo.from_dict(json.loads(json.dumps(peer.to_dict()))) == peer


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"host": 1}, "host of a prefill engine is 1; expected text"),
        ({"nonce": None}, "nonce of a prefill engine is None; expected text"),
        ({"host": "\ud800"}, "which is no text"),
        ({"ports": [[]] * 2 + [2**64]}, "a prefill engine holds a number beyond 64 bits"),
        ({"ports": [1, 2]}, "a prefill engine of tp 1 tells 2 transfer ports"),
    ],
)
def test_an_odd_peer_is_refused_by_its_field(change: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        PeerInfo.from_dict({**PEER, **change})


@given(text=changed(PREFILL.to_dict()) | ODD_TEXTS.map(str.encode))
@example(text=b"[" * 900 + b"]" * 900)
@example(text=json.dumps({**PREFILL.to_dict(), "model": "\ud800"}).encode())
def test_a_shape_is_understood_or_refused(text: bytes) -> None:
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return
    try:
        shape = EngineShape.from_dict(told)
    except UsageError as error:
        assert str(error).encode()
    else:
        assert (
            EngineShape.from_dict(json.loads(json.dumps(shape.to_dict(), ensure_ascii=False).encode()))
            == shape
        )


SIZES = ["num_layers", "num_kv_heads", "head_dim", "tp_size", "dcp_size", "page_size", "interleave"]


@pytest.mark.parametrize("name", SIZES)
@given(size=st.integers(1 << 21, 2**63 - 1))
def test_a_size_beyond_any_launch_is_refused_by_itself(name: str, size: int) -> None:
    with pytest.raises(UsageError, match=f"{name} of an engine's shape is {size}; allowed: 1 to"):
        EngineShape.from_dict({**PREFILL.to_dict(), name: size})


def test_a_decode_rank_of_a_million_is_refused_at_once(prefill: World) -> None:
    """Routes to as many ranks would take minutes, in the thread that serves all others."""
    with zmq.Context() as context:
        odd = RawDecodeRank(context, prefill.peer, DECODE)
        odd.greet(shape={**DECODE.to_dict(), "tp_size": 2**20, "dcp_size": 2**20})
        odd.socket.rcvtimeo = round(PATIENCE_S * 1000)
        assert odd.hears() == Refuse(why="tp_size of an engine's shape is 1048576; allowed: 1 to 1024")
        odd.socket.close()
