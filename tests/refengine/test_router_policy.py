"""What the router decides without I/O: bodies, choice of engines, retries, events, arguments."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections import Counter
from typing import Any

import httpx
import pytest
from fake_pd_engines import shape_of
from hypothesis import given
from hypothesis import strategies as st
from played_ranks import call, play, played
from pydantic import ValidationError

from harness.errors import HandoverError, UsageError
from harness.refengine.front.app import AbortBody
from harness.refengine.front.bootstrap import Bootstrap, Pairing
from harness.refengine.front.native import GenerateBody
from harness.refengine.front.openai import ChatBody, CompletionBody
from harness.refengine.router.bodies import Endpoint, aborted_in, is_covered, parse_abort, parse_body
from harness.refengine.router.config import RouterConfig, host_and_port
from harness.refengine.router.events import EventSplitter, is_end
from harness.refengine.router.policy import (
    LONGEST_BACKOFF_S,
    Cause,
    Failure,
    Pair,
    answered,
    backoff_s,
    choose,
    decisive,
    told,
    unless_held,
)
from harness.refengine.router.sides import in_words
from harness.refengine.tokenizer import ByteTokenizer
from harness.topology import Side

PREFILL = ("http://p0:1", "http://p1:1", "http://p2:1")
DECODE = ("http://d0:1", "http://d1:1")
PAIR = Pair(prefill=PREFILL[0], decode=DECODE[0])


def failure(cause: Cause, *, pair: Pair = PAIR, side: Side | None = Side.PREFILL) -> Failure:
    return Failure(cause=cause, pair=pair, side=side, words=cause.value)


failures = st.builds(
    lambda p, d, side: failure(
        Cause.UNFIT if side is None else Cause.BROKEN, pair=Pair(prefill=p, decode=d), side=side
    ),
    st.sampled_from(PREFILL),
    st.sampled_from(DECODE),
    st.sampled_from([None, *Side]),
)


@given(st.integers(0, 10), st.lists(failures, max_size=8), st.sets(st.sampled_from(PREFILL + DECODE)))
def test_the_engines_chosen_are_the_least_blamed_that_fit(
    turn: int, met: list[Failure], ill: set[str]
) -> None:
    chosen = choose(PREFILL, DECODE, turn=turn, met=met, well=lambda url: url not in ill)
    unfit = [one.pair for one in met if one.side is None]
    fitting = [Pair(prefill=p, decode=d) for p in PREFILL for d in DECODE]
    fitting = [pair for pair in fitting if pair not in unfit]
    if not fitting:
        assert chosen is None
        return

    def badness(pair: Pair) -> tuple[int, int, int]:
        blame = sum(one.side is not None and one.pair.url(one.side) == pair.url(one.side) for one in met)
        used = sum((one.pair.prefill == pair.prefill) + (one.pair.decode == pair.decode) for one in met)
        return blame, len({pair.prefill, pair.decode} & ill), used

    assert chosen in fitting
    assert badness(chosen) == min(map(badness, fitting))


def test_engines_take_turns() -> None:
    pairs = [choose(PREFILL, DECODE, turn=turn, met=[], well=lambda _: True) for turn in range(12)]
    assert Counter(pair.prefill for pair in pairs if pair) == dict.fromkeys(PREFILL, 4)
    assert Counter(pair.decode for pair in pairs if pair) == dict.fromkeys(DECODE, 6)


@pytest.mark.parametrize("side", [None, *Side])
def test_other_engines_of_both_sides_are_next(side: Side | None) -> None:
    met = [failure(Cause.ECHO, side=side)]
    assert choose(PREFILL, DECODE, turn=0, met=met, well=lambda _: True) == Pair(
        prefill=PREFILL[1], decode=DECODE[1]
    )
    # One that is not well is no better than one that has merely been used.
    kept = choose(PREFILL[:2], DECODE, turn=0, met=met, well=lambda url: url != PREFILL[1])
    assert kept is not None and kept.decode == DECODE[1]


@pytest.mark.parametrize(
    ("status", "again"), [(400, False), (404, False), (413, False), (500, False), (502, True), (503, True)]
)
def test_only_a_side_that_cannot_serve_now_is_worth_another_attempt(status: int, again: bool) -> None:
    assert answered(PAIR, Side.DECODE, status=status, body=b"").retried is again


@pytest.mark.parametrize("cause", [Cause.BROKEN, Cause.SILENT, Cause.UNFIT])
def test_a_side_without_an_answer_is_worth_another_attempt(cause: Cause) -> None:
    assert failure(cause).retried


def echo(side: Side, words: str = "the other went") -> Failure:
    return answered(PAIR, side, status=502, body=json.dumps({"error": {"message": words}}).encode())


@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("status", [400, 413, 500, 503, None])
def test_what_a_side_says_of_itself_comes_before_what_the_other_says_of_it(
    side: Side, status: int | None
) -> None:
    own = (
        failure(Cause.BROKEN, side=side)
        if status is None
        else answered(PAIR, side, status=status, body=b'{"error": {"message": "own"}}')
    )
    other = echo(Side.DECODE if side is Side.PREFILL else Side.PREFILL)
    assert decisive([own, other], silent=None) is own
    assert decisive([other, own], silent=None) is own


def test_a_refusal_comes_before_a_death() -> None:
    refused = answered(PAIR, Side.PREFILL, status=400, body=b"{}")
    assert decisive([failure(Cause.BROKEN, side=Side.DECODE), refused], silent=None) is refused


def test_a_complaint_is_of_the_side_that_says_nothing() -> None:
    complaint = echo(Side.PREFILL, "no progress from decode rank 1")
    blamed = decisive([complaint], silent=Side.DECODE)
    assert (blamed.side, blamed.retried, blamed.status) == (Side.DECODE, True, 502)
    assert str(blamed) == (
        "decode engine http://d0:1: has not answered; prefill engine http://p0:1: answered 502: no progress from "
        "decode rank 1"
    )


def test_a_complaint_of_a_side_that_did_its_part_is_the_complainers_own() -> None:
    complaint = echo(Side.DECODE)
    assert decisive([complaint], silent=None) is complaint


def test_complaints_of_each_other_are_nobodys() -> None:
    both = decisive([echo(Side.PREFILL, "one"), echo(Side.DECODE, "other")], silent=None)
    assert (both.side, both.retried) == (None, True)
    assert str(both).endswith("http://d0:1: prefill answered 502: one, decode answered 502: other")


@pytest.mark.parametrize("rid", ["r", "it's", 'a "quoted" one', "ü\n"])
def test_a_rid_in_flight_is_known_by_the_engines_own_words(rid: str) -> None:
    async def script() -> None:
        async with played() as ranks:
            await call(ranks, rid).start()
            with pytest.raises(UsageError) as refusal:
                await call(ranks, rid).start()
            body = json.dumps({"error": {"message": str(refusal.value)}}).encode()
            held = unless_held(answered(PAIR, Side.DECODE, status=400, body=body))
            assert (held.cause, held.retried, held.status) == (Cause.HELD, True, 502)

    play(script())


@pytest.mark.parametrize(("status", "words"), [(400, "too long"), (502, "rid 'r' is in flight already")])
def test_other_failures_are_what_they_were(status: int, words: str) -> None:
    body = json.dumps({"error": {"message": words}}).encode()
    told = answered(PAIR, Side.DECODE, status=status, body=body)
    assert unless_held(told) is told


NAMES = ["r", "r_", "r_0", "r_12", "r_x", "r_0_1", "rr", "_0", "q"]


@pytest.mark.parametrize("named", NAMES)
def test_an_abort_covers_what_the_engines_end(named: str) -> None:
    async def script() -> None:
        async with played() as ranks:
            await call(ranks, *NAMES).start()
            ended = ranks.link.rids(named)
            assert [name for name in NAMES if is_covered(name, by=named)] == ended

    play(script())


@pytest.mark.parametrize(
    ("endpoint", "fields", "names"),
    [
        (Endpoint.GENERATE, {"text": "a", "rid": "r"}, {"r"}),
        (Endpoint.GENERATE, {"text": ["a"], "rid": "r"}, {"r_0"}),
        (Endpoint.GENERATE, {"text": ["a", "b"], "rid": "r"}, {"r_0", "r_1"}),
        (Endpoint.GENERATE, {"text": ["a", "b"], "rid": ["r", "s"]}, {"r", "s"}),
        (Endpoint.COMPLETIONS, {"prompt": "a", "rid": "r"}, {"r"}),
        (Endpoint.COMPLETIONS, {"prompt": ["a"], "rid": "r"}, {"r"}),
        (Endpoint.COMPLETIONS, {"prompt": ["a", "b"], "rid": "r"}, {"r_0", "r_1"}),
        (Endpoint.CHAT, {"messages": [{"role": "user", "content": "a"}], "rid": "r"}, {"r"}),
    ],
)
def test_prompts_have_the_names_that_the_engines_give_them(
    endpoint: Endpoint, fields: dict[str, Any], names: set[str]
) -> None:
    model = {
        Endpoint.GENERATE: GenerateBody,
        Endpoint.COMPLETIONS: CompletionBody,
        Endpoint.CHAT: ChatBody,
    }[endpoint]
    prompts = model.model_validate(fields).prompts(ByteTokenizer())
    assert {prompt.request.rid for prompt in prompts} == names
    assert parse_body(endpoint, json.dumps(fields).encode()).names == names


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "give either rid or abort_all"),
        ({"abort_all": False}, "give either"),
        ({"rid": "", "abort_all": False}, "give either"),
        ({"rid": "r", "abort_all": True}, "give either"),
        ({"rid": 5}, "rid is 5"),
        ({"rid": None}, "rid is None"),
        ({"rid": ["r"]}, "rid is"),
        ({"abort_all": 1}, "abort_all is 1"),
        ({"abort_all": "true"}, "abort_all is 'true'"),
        ({"rid": "r", "all": True}, "all: unknown"),
        ([], "a JSON list"),
    ],
)
def test_aborts_are_refused_where_the_engines_refuse_them(body: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_abort(json.dumps(body).encode())
    if isinstance(body, dict) and "give either" not in words:
        with pytest.raises(ValidationError):
            AbortBody.model_validate(body)


@pytest.mark.parametrize(
    ("body", "rid"),
    [
        ({"rid": "r"}, "r"),
        ({"rid": "r", "abort_all": False}, "r"),
        ({"abort_all": True}, None),
        ({"rid": "", "abort_all": True}, None),
    ],
)
def test_aborts_are_taken_where_the_engines_take_them(body: dict[str, Any], rid: str | None) -> None:
    AbortBody.model_validate(body)
    assert parse_abort(json.dumps(body).encode()) == rid


@pytest.mark.parametrize(
    ("answer", "aborted"),
    [
        ({"meta_info": {"finish_reason": {"type": "abort"}}}, True),
        ({"meta_info": {"finish_reason": {"type": "length"}}}, False),
        ([{"meta_info": {"finish_reason": {"type": kind}}} for kind in ("length", "abort")], True),
        ([{"meta_info": {"finish_reason": {"type": kind}}} for kind in ("length", "stop")], False),
        ({"choices": [{"finish_reason": "length"}, {"finish_reason": "abort"}]}, True),
        ({"choices": [{"finish_reason": "length"}]}, False),
        *((odd, False) for odd in ({}, [1], "abort", None, {"meta_info": None}, {"choices": 1})),
    ],
)
def test_an_answer_tells_of_an_abort(answer: Any, aborted: bool) -> None:
    assert aborted_in(json.dumps(answer).encode()) is aborted


@pytest.mark.parametrize(
    "error", [kind("") for kind in (httpx.ConnectError, httpx.ReadError, httpx.ReadTimeout, httpx.WriteError)]
)
def test_a_break_without_words_is_told_by_its_kind(error: httpx.HTTPError) -> None:
    assert in_words(error).endswith(f"({type(error).__name__})")


def test_a_break_with_words_is_told_by_them() -> None:
    assert in_words(httpx.ReadError("peer reset")) == "the connection broke (peer reset)"


def test_a_prefill_engine_that_hangs_up_is_told_by_the_kind_of_break() -> None:
    """As the decode engine's front meets it; its HTTP library has no words for a reset connection."""

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        # Without lingering, the end of a connection is a reset.
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()

    async def script() -> None:
        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        async with server:
            bootstrap = Bootstrap(
                bootstrap_room=1,
                bootstrap_host="127.0.0.1",
                bootstrap_port=server.sockets[0].getsockname()[1],
            )
            with pytest.raises(HandoverError, match=r"cannot be reached: \w"):
                await Pairing(shape_of(Side.DECODE)).share([], [bootstrap])

    play(script())


def test_what_is_told_names_each_attempt() -> None:
    words = answered(PAIR, Side.DECODE, status=502, body=b'{"error": {"message": "prefill went"}}')
    assert told([words]) == "decode engine http://d0:1: answered 502: prefill went"
    assert told([words, words]) == f"no answer in 2 attempts, each time: {words}"
    both = told([words, failure(Cause.UNFIT, side=None)])
    assert both.startswith("no answer in 2 attempts: (1) decode engine http://d0:1: answered 502")
    assert both.endswith("(2) prefill engine http://p0:1 and decode engine http://d0:1: unfit")


def test_waits_grow_and_stay_small() -> None:
    waits = [backoff_s(failed) for failed in range(1, 2000)]
    assert waits == sorted(waits)
    assert waits[0] < waits[1] and waits[-1] == LONGEST_BACKOFF_S


@pytest.mark.parametrize(
    ("endpoint", "fields", "rooms"),
    [
        (Endpoint.GENERATE, {"text": "a"}, None),
        (Endpoint.GENERATE, {"text": ["a"]}, 1),
        (Endpoint.GENERATE, {"text": ["a", "b", "c"]}, 3),
        (Endpoint.GENERATE, {"input_ids": [1, 2, 3]}, None),
        (Endpoint.GENERATE, {"input_ids": [[1, 2, 3]]}, 1),
        (Endpoint.GENERATE, {"input_ids": [[1], [2]]}, 2),
        (Endpoint.COMPLETIONS, {"prompt": "a"}, None),
        (Endpoint.COMPLETIONS, {"prompt": ["a", "b"]}, 2),
        (Endpoint.COMPLETIONS, {"prompt": [1, 2]}, None),
        (Endpoint.COMPLETIONS, {"prompt": [[1], [2]]}, 2),
        (Endpoint.CHAT, {"messages": [{}, {}]}, None),
        # What engines refuse is theirs to refuse.
        (Endpoint.GENERATE, {}, None),
        (Endpoint.GENERATE, {"text": []}, None),
        (Endpoint.GENERATE, {"text": ["a", 1]}, None),
        (Endpoint.COMPLETIONS, {"prompt": {}}, None),
    ],
)
def test_each_prompt_has_a_room(endpoint: Endpoint, fields: dict[str, Any], rooms: int | None) -> None:
    body = parse_body(endpoint, json.dumps(fields).encode())
    met = body.rooms()
    prefill = json.loads(body.for_prefill(met))
    decode = json.loads(body.for_decode(met, prefill_url="http://p0:9"))
    # A request without a name gets one, the same on both sides.
    assert prefill == {**fields, "bootstrap_room": prefill["bootstrap_room"], "rid": met.name}
    assert decode["rid"] == met.name != body.rooms().name
    assert decode["bootstrap_room"] == prefill["bootstrap_room"]
    if rooms is None:
        assert (decode["bootstrap_host"], decode["bootstrap_port"]) == ("p0", 9)
        assert 0 <= decode["bootstrap_room"] < 2**63
    else:
        assert (decode["bootstrap_host"], decode["bootstrap_port"]) == (["p0"] * rooms, [9] * rooms)
        assert len(set(decode["bootstrap_room"])) == rooms


def test_the_prefill_side_never_streams() -> None:
    body = parse_body(Endpoint.GENERATE, b'{"text": "a", "stream": true}')
    rooms = body.rooms()
    assert json.loads(body.for_prefill(rooms))["stream"] is False
    assert json.loads(body.for_decode(rooms, prefill_url=PREFILL[0]))["stream"] is True


def test_fields_arrive_as_they_were_sent() -> None:
    params = '{"temperature": 0.1, "sampling_seed": 9223372036854775809}'
    sent = f'{{"text": "\\ud800 ü \\u0000", "sampling_params": {params}}}'
    body = parse_body(Endpoint.GENERATE, sent.encode())
    assert json.loads(sent).items() <= json.loads(body.for_prefill(body.rooms())).items()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "a JSON list"),
        (b'{"text": "a", "bootstrap_room": 1}', "bootstrap_room: the router chooses"),
        (b'{"bootstrap_port": 1, "bootstrap_host": "x"}', "bootstrap_host, bootstrap_port"),
    ],
)
def test_bodies_that_cannot_go_through_are_refused(body: bytes, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_body(Endpoint.GENERATE, body)


@given(st.lists(st.binary(max_size=6).filter(lambda one: b"\n" not in one)), st.data())
def test_events_are_whole_however_they_are_cut(events: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(event + b"\n\n" for event in events) + b"rest"
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8).map(sorted))
    splitter, found = EventSplitter(), list[bytes]()
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += splitter.feed(stream[start:stop])
    assert found == [event + b"\n\n" for event in events]
    assert splitter.rest == b"rest"


@pytest.mark.parametrize(
    ("event", "end"),
    [
        (b"data: [DONE]\n\n", True),
        (b'data: {"error": {"message": "x"}}\n\n', True),
        (b'data: {"text": "[DONE]"}\n\n', False),
        (b'data: {"text": "error"}\n\n', False),
        (b'data: {"error": null}\n\n', False),
        (b"data: {\n\n", False),
    ],
)
def test_the_last_event_tells_whether_a_stream_was_cut(event: bytes, end: bool) -> None:
    assert is_end(event) is end


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prefill": ()}, "no --prefill"),
        ({"decode": ()}, "no --decode"),
        ({"prefill": ("127.0.0.1:1",)}, "--prefill is '127.0.0.1:1'; allowed"),
        ({"prefill": ("https://a:1",)}, "--prefill is 'https://a:1'"),
        ({"decode": ("http://a:1/v1",)}, "--decode is 'http://a:1/v1'"),
        ({"decode": ("http://a:x",)}, "--decode is 'http://a:x'"),
        ({"decode": ("http://a:70000",)}, "--decode is 'http://a:70000'"),
        ({"decode": ("http://u@a:1",)}, "--decode is 'http://u@a:1'"),
        ({"decode": (PREFILL[0] + "/",)}, "--decode http://p0:1/ is given twice"),
        ({"port": 65536}, "--port is 65536"),
        ({"attempts": 0}, "--attempts is 0"),
        ({"request_timeout": 0.0}, "--request-timeout is 0"),
        ({"request_timeout": float("nan")}, "--request-timeout is nan"),
        ({"wait_ready": -1.0}, "--wait-ready is -1"),
    ],
)
def test_wrong_arguments_are_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words.replace("?", r"\?")):
        RouterConfig(**{"prefill": PREFILL, "decode": DECODE, **changes})


@pytest.mark.parametrize(
    ("url", "place"),
    [("http://a:5", ("a", 5)), ("http://a/", ("a", 80)), ("http://[::1]:5", ("[::1]", 5))],
)
def test_the_bootstrap_address_is_that_of_the_url(url: str, place: tuple[str, int]) -> None:
    assert host_and_port(url) == place
