"""What the router decides without I/O: bodies, choice of engines, retries, events, arguments."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.refengine.router.bodies import Endpoint, parse_body
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
)
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

    def badness(pair: Pair) -> tuple[int, int]:
        blame = sum(one.side is not None and one.pair.url(one.side) == pair.url(one.side) for one in met)
        return blame, len({pair.prefill, pair.decode} & ill)

    assert chosen in fitting
    assert badness(chosen) == min(map(badness, fitting))


def test_engines_take_turns() -> None:
    pairs = [choose(PREFILL, DECODE, turn=turn, met=[], well=lambda _: True) for turn in range(12)]
    assert Counter(pair.prefill for pair in pairs if pair) == dict.fromkeys(PREFILL, 4)
    assert Counter(pair.decode for pair in pairs if pair) == dict.fromkeys(DECODE, 6)


def test_another_engine_of_the_side_that_failed_is_next() -> None:
    broken = failure(Cause.BROKEN, side=Side.DECODE)
    chosen = choose(PREFILL, DECODE, turn=0, met=[broken], well=lambda _: True)
    assert chosen == Pair(prefill=PREFILL[0], decode=DECODE[1])


@pytest.mark.parametrize(
    ("status", "again"), [(400, False), (404, False), (413, False), (500, False), (502, True), (503, True)]
)
def test_only_a_side_that_cannot_serve_now_is_worth_another_attempt(status: int, again: bool) -> None:
    assert answered(PAIR, Side.DECODE, status=status, body=b"").retried is again


@pytest.mark.parametrize("cause", [Cause.BROKEN, Cause.SILENT, Cause.UNFIT])
def test_a_side_without_an_answer_is_worth_another_attempt(cause: Cause) -> None:
    assert failure(cause).retried


def test_of_two_failures_at_once_the_one_that_explains_the_other_counts() -> None:
    refused = answered(PAIR, Side.PREFILL, status=400, body=b'{"error": {"message": "too long"}}')
    complaint = answered(PAIR, Side.DECODE, status=502, body=b'{"error": {"message": "prefill went"}}')
    broken = failure(Cause.BROKEN)
    assert decisive([complaint, refused]) is refused
    assert decisive([complaint, broken]) is broken
    assert decisive([broken, complaint]) is broken


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
    assert prefill == {**fields, "bootstrap_room": prefill["bootstrap_room"]}
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
