"""Requests through the router: one process, real sockets, engines that fail on demand."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from fake_pd_engines import EVENTS, LATER_S, PATIENCE_S, FakeEngine, Hall, hall
from router_process import Router, events, routed

from harness.refengine.transfer.handshake import refuse_pair
from harness.topology import Side

OK, DONE = 200, "[DONE]"


@pytest.fixture(scope="module")
def place() -> Iterator[Hall]:
    with hall() as one:
        yield one


@pytest.fixture(scope="module")
def standing(place: Hall) -> tuple[FakeEngine, FakeEngine]:
    return place.pair()


@pytest.fixture(scope="module")
def running(standing: tuple[FakeEngine, FakeEngine]) -> Iterator[Router]:
    with routed(standing) as one:
        yield one


@pytest.fixture
def pair(place: Hall, standing: tuple[FakeEngine, FakeEngine]) -> tuple[FakeEngine, FakeEngine]:
    """Engines as if just started, at the addresses that the router knows."""
    for engine in standing:
        place.renew(engine)
    return standing


@pytest.fixture
def router(running: Router, pair: tuple[FakeEngine, FakeEngine]) -> Router:
    """One router for all tests: it must serve as before after whatever its engines and clients have done."""
    running.before = running.counters()
    return running


def message(response: httpx.Response) -> str:
    return str(response.json()["error"]["message"])


def attempts(response: httpx.Response) -> str:
    return response.headers["x-harness-attempts"]


# --- what goes where


def test_both_sides_meet_in_one_room(pair: tuple[FakeEngine, FakeEngine], router: Router) -> None:
    prefill, decode = pair
    response = router.generate(rid="r", sampling_params={"max_new_tokens": 2})
    assert (response.status_code, response.json()["text"], attempts(response)) == (OK, "decode-1", "1")
    to_prefill, to_decode = prefill.calls.get(timeout=PATIENCE_S), decode.calls.get(timeout=PATIENCE_S)
    sent = {"text": "a", "rid": "r", "sampling_params": {"max_new_tokens": 2}}
    room = to_prefill.body["bootstrap_room"]
    assert to_prefill.body == {**sent, "bootstrap_room": room}
    bootstrap = {"bootstrap_host": "127.0.0.1", "bootstrap_port": prefill.port, "bootstrap_room": room}
    assert to_decode.body == {**sent, **bootstrap}
    assert {call.headers["connection"] for call in (to_prefill, to_decode)} == {"close"}
    assert prefill.closed.empty()


def test_the_prefill_sides_answer_is_neither_waited_for_nor_cut(
    place: Hall, pair: tuple[FakeEngine, FakeEngine], router: Router
) -> None:
    prefill, _ = pair
    place.call(prefill.answers.clear)
    assert router.generate().status_code == OK
    place.call(prefill.answers.set)
    while prefill.answered.get(timeout=PATIENCE_S).path != "/generate":
        pass
    assert prefill.closed.empty()


def test_the_prefill_sides_answer_is_not_waited_for_at_all(place: Hall) -> None:
    """Not even as long as a complaint of it would be: the request's time is shorter."""
    prefill, decode = place.pair()
    place.call(prefill.answers.clear)
    with routed([prefill, decode], "--request-timeout", "2") as router:
        assert router.generate().status_code == OK


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_openai_endpoints_go_through_both_sides(
    path: str, pair: tuple[FakeEngine, FakeEngine], router: Router
) -> None:
    assert router.http.post(path, json={"prompt": "a"}).status_code == OK
    assert [engine.calls.get(timeout=PATIENCE_S).path for engine in pair] == [path, path]


def test_each_prompt_of_a_batch_has_its_room(pair: tuple[FakeEngine, FakeEngine], router: Router) -> None:
    answers = router.generate(text=["a", "b", "c"]).json()
    rooms = pair[0].calls.get(timeout=PATIENCE_S).rooms
    assert [answer["room"] for answer in answers] == rooms
    assert len(set(rooms)) == 3


def test_a_stream_is_passed_on_whole(pair: tuple[FakeEngine, FakeEngine], router: Router) -> None:
    with router.http.stream("POST", "/generate", json={"text": "a", "stream": True}) as response:
        told = events(response)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert [event["number"] for event in told[:-1]] == list(range(EVENTS))
    assert (told[-1], attempts(response)) == (DONE, "1")
    assert pair[0].calls.get(timeout=PATIENCE_S).body["stream"] is False


def test_a_huge_body_goes_through(router: Router) -> None:
    assert router.generate(text="x" * (8 << 20)).status_code == OK


@pytest.mark.parametrize("content", [b"", b"[1]", b'{"text": "a", "bootstrap_room": 1}'])
def test_a_wrong_body_is_refused_by_the_router(
    content: bytes, pair: tuple[FakeEngine, FakeEngine], router: Router
) -> None:
    response = router.http.post("/generate", content=content)
    assert (response.status_code, response.json()["error"]["type"]) == (400, "BadRequestError")
    assert pair[0].calls.empty() and pair[1].calls.empty()


def test_a_burst_is_answered(router: Router) -> None:
    with ThreadPoolExecutor(64) as pool:
        responses = list(pool.map(lambda number: router.generate(rid=f"r{number}"), range(257)))
    assert [response.status_code for response in responses] == [OK] * 257
    assert router.counted() == {"requests": 257, "retries": 0, "failed": 0}


# --- one side fails


@pytest.mark.parametrize("side", [0, 1])
def test_a_refusal_is_told_in_the_engines_words_and_ends_the_other_call(
    side: int, pair: tuple[FakeEngine, FakeEngine], router: Router
) -> None:
    pair[side].refusals = [(400, "the prompt is too long")]
    pair[1 - side].hangs = True
    response = router.generate()
    assert (response.status_code, message(response), attempts(response)) == (
        400,
        "the prompt is too long",
        "1",
    )
    # The other side was not waited for, and its call is closed.
    pair[1 - side].closed.get(timeout=PATIENCE_S)
    assert router.counted() == {"requests": 1, "retries": 0, "failed": 0}


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("status", [502, 503])
def test_a_side_that_cannot_serve_now_is_tried_again(
    side: int, status: int, pair: tuple[FakeEngine, FakeEngine], router: Router
) -> None:
    pair[side].refusals = [(status, "rank 1 went away")]
    response = router.generate(rid="same")
    assert (response.status_code, attempts(response)) == (OK, "2")
    assert router.counted() == {"requests": 1, "retries": 1, "failed": 0}
    first, second = (pair[0].calls.get(timeout=PATIENCE_S).rooms for _ in range(2))
    assert first != second


def test_each_failed_attempt_is_logged(place: Hall) -> None:
    prefill, decode = place.pair()
    prefill.refusals = [(503, "rank 1 went away")]
    with routed([prefill, decode]) as router:
        router.generate()
        router.stop()
    assert router.told == (
        f"router: /generate: attempt 1 of 3: prefill engine {prefill.url}: answered 503: rank 1 went away; "
        "trying again\n"
    )


def test_the_last_error_says_what_each_attempt_met(
    pair: tuple[FakeEngine, FakeEngine], router: Router
) -> None:
    pair[0].refusals = [(503, "first"), (503, "second"), (503, "third")]
    response = router.generate()
    assert (response.status_code, attempts(response)) == (503, "3")
    for number, words in enumerate(["first", "second", "third"], 1):
        assert f"({number}) prefill engine {pair[0].url}: answered 503: {words}" in message(response)
    assert router.counted() == {"requests": 1, "retries": 2, "failed": 1}


@pytest.mark.parametrize("side", [0, 1])
def test_a_side_that_dies_under_a_request_is_told(
    side: int, place: Hall, pair: tuple[FakeEngine, FakeEngine], router: Router
) -> None:
    for engine in pair:
        engine.hangs = True
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(router.generate)
        pair[0].calls.get(timeout=PATIENCE_S), pair[1].calls.get(timeout=PATIENCE_S)
        place.die(pair[side])
        response = waiting.result(PATIENCE_S)
    assert (response.status_code, attempts(response)) == (502, "3")
    assert f"{pair[side].side.value} engine {pair[side].url}: the connection broke" in message(response)
    assert "nothing answers there" in message(response)
    pair[1 - side].closed.get(timeout=PATIENCE_S)


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_that_comes_after_its_echo_is_what_the_client_gets(
    side: int, stream: bool, place: Hall, pair: tuple[FakeEngine, FakeEngine], router: Router
) -> None:
    refusing, echoing = pair[side], pair[1 - side]
    refusing.refusals = [(400, "the pool holds 512 tokens")]
    place.call(refusing.judges.clear)
    echoing.refusals = [(502, "the other side gave it up")]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(router.generate, stream=stream)
        while echoing.answered.get(timeout=PATIENCE_S).path != "/generate":
            pass
        place.call(refusing.judges.set)
        response = waiting.result(PATIENCE_S)
    assert (response.status_code, message(response)) == (400, "the pool holds 512 tokens")
    assert router.counted() == {"requests": 1, "retries": 0, "failed": 0}


@pytest.mark.parametrize("side", [0, 1])
def test_a_death_comes_before_its_echo(
    side: int, place: Hall, pair: tuple[FakeEngine, FakeEngine], router: Router
) -> None:
    pair[side].hangs = True
    pair[1 - side].refusals = [(502, "rank 1 of the other side ended")]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(router.generate)
        while pair[1 - side].answered.get(timeout=PATIENCE_S).path != "/generate":
            pass
        place.die(pair[side])
        response = waiting.result(PATIENCE_S)
    assert "rank 1" not in message(response)
    assert f"(1) {pair[side].side} engine {pair[side].url}: the connection broke" in message(response)


@pytest.mark.parametrize("stuck", [0, 1])
def test_what_one_side_complains_of_is_the_other_sides(stuck: int, place: Hall) -> None:
    pairs = [place.pair(), place.pair()]
    silent, patient = pairs[0][stuck], pairs[0][1 - stuck]
    silent.hangs = True
    for side in (pair[1 - stuck] for pair in pairs):
        side.patience = LATER_S
    # Two engines on the side that is stuck, and one on the other.
    with routed([silent, pairs[1][stuck], patient]) as router:
        responses = [router.generate() for _ in range(2)]
        assert {response.status_code for response in responses} == {OK}
        assert sorted(map(attempts, responses)) == ["1", "2"]
        router.stop()
    complaint = (
        f"{patient.side} engine {patient.url}: answered 502: no progress from rank 1 of the other side"
    )
    assert router.told == (
        f"router: /generate: attempt 1 of 3: {silent.side} engine {silent.url}: has not answered; {complaint}; "
        "trying again\n"
    )


def test_sides_that_complain_of_each_other_are_both_told_and_both_left(place: Hall) -> None:
    pairs = [place.pair(), place.pair()]
    pairs[0][0].refusals, pairs[0][1].refusals = [(502, "decode is late")], [(502, "prefill is late")]
    with routed([engine for pair in pairs for engine in pair]) as router:
        response = router.generate()
        assert (response.status_code, attempts(response)) == (OK, "2")
        assert not pairs[1][0].calls.empty() and not pairs[1][1].calls.empty()
        router.stop()
    prefill, decode = (engine.url for engine in pairs[0])
    assert f"prefill engine {prefill} and decode engine {decode}: " in str(router.told)
    assert "prefill answered 502: decode is late, decode answered 502: prefill is late" in str(router.told)


@pytest.mark.parametrize("stuck", [0, 1])
@pytest.mark.parametrize("text", ["a", ["a", "b"]])
def test_a_rid_that_an_engine_does_not_let_go_is_not_the_clients_mistake(
    stuck: int, text: Any, place: Hall, pair: tuple[FakeEngine, FakeEngine], router: Router
) -> None:
    place.call(pair[stuck].steps.clear)
    pair[1 - stuck].patience = LATER_S
    response = router.generate(text=text, rid="r")
    assert (response.status_code, attempts(response)) == (502, "3")
    assert f"(1) {pair[stuck].side} engine {pair[stuck].url}: has not answered; " in message(response)
    assert f"(2) {pair[stuck].side} engine {pair[stuck].url}: has not given up the attempt" in message(
        response
    )
    assert router.counted() == {"requests": 1, "retries": 2, "failed": 1}
    place.call(pair[stuck].steps.set)


def test_a_rid_that_one_engine_does_not_let_go_goes_to_another(place: Hall) -> None:
    prefill, stuck = place.pair()
    other = place.engine(Side.DECODE)
    place.call(stuck.steps.clear)
    prefill.patience = LATER_S
    with routed([prefill, stuck, other]) as router:
        response = router.generate(rid="r")
    assert (response.status_code, response.json()["text"], attempts(response)) == (OK, other.nonce, "2")


def test_a_rid_that_another_client_uses_is_refused(
    pair: tuple[FakeEngine, FakeEngine], router: Router
) -> None:
    pair[0].hangs = True
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(router.generate, rid="r")
        pair[0].calls.get(timeout=PATIENCE_S), pair[1].calls.get(timeout=PATIENCE_S)
        response = router.generate(rid="r")
        assert (response.status_code, message(response)) == (400, "rid 'r' is in flight already")
        router.http.post("/abort_request", json={"rid": "r"})
        assert waiting.result(PATIENCE_S).status_code == OK


def test_another_engine_of_the_side_takes_over(place: Hall) -> None:
    prefill, first = place.pair()
    second = place.engine(Side.DECODE)
    with routed([prefill, first, second]) as router:
        place.die(first)
        responses = [router.generate() for _ in range(4)]
        assert {(one.status_code, one.json()["text"]) for one in responses} == {(OK, second.nonce)}
        # The dead engine was met once, and is not tried first any more.
        assert [attempts(one) for one in responses] == ["2", "1", "1", "1"]
        place.restart(first, nonce="again")
        while router.generate().json()["text"] != "again":
            pass


def test_a_restarted_engine_of_another_layout_is_refused(
    place: Hall, pair: tuple[FakeEngine, FakeEngine], router: Router
) -> None:
    prefill, decode = pair
    place.die(decode)
    place.restart(decode, nonce="other", page_size=32)
    response = router.generate()
    assert response.status_code == 502
    assert refuse_pair(prefill.shape, decode.shape) in message(response)
    assert prefill.calls.empty() and decode.calls.empty()
    place.die(decode)
    place.restart(decode, nonce="as before")
    assert router.generate().json()["text"] == "as before"


# --- streams


@pytest.mark.parametrize("knob", ["breaks_at", "ends_at"])
@pytest.mark.parametrize("at", [1, 2])
def test_a_stream_that_breaks_ends_with_an_error(
    knob: str, at: int, pair: tuple[FakeEngine, FakeEngine], router: Router
) -> None:
    setattr(pair[1], knob, at)
    with router.http.stream("POST", "/generate", json={"text": "a", "stream": True}) as response:
        told = events(response)
    assert [event["number"] for event in told[:-1]] == list(range(at))
    assert told[-1]["error"]["code"] == 502
    assert f"decode engine {pair[1].url}" in told[-1]["error"]["message"]
    assert router.counted()["failed"] == 1


def test_an_engines_own_error_in_a_stream_is_passed_on_once(
    pair: tuple[FakeEngine, FakeEngine], router: Router
) -> None:
    pair[1].errs_at = 2
    with router.http.stream("POST", "/generate", json={"text": "a", "stream": True}) as response:
        told = events(response)
    assert [event.get("number") for event in told] == [0, 1, None]
    assert told[-1]["error"] == {"message": "rank 3 died", "code": 502}


@pytest.mark.parametrize("knob", ["breaks_at", "ends_at", "errs_at"])
def test_a_stream_that_fails_before_its_first_event_is_tried_again(
    knob: str, pair: tuple[FakeEngine, FakeEngine], router: Router
) -> None:
    setattr(pair[1], knob, 0)
    response = router.generate(stream=True)
    assert (response.status_code, attempts(response)) == (502, "3")
    setattr(pair[1], knob, None)
    assert router.generate(stream=True).status_code == OK


# --- clients that leave


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_closes_both_calls(
    stream: bool, pair: tuple[FakeEngine, FakeEngine], router: Router
) -> None:
    for engine in pair:
        engine.hangs = True
    _leave_after_call(router, pair, stream=stream)
    assert [engine.closed.get(timeout=PATIENCE_S).path for engine in pair] == ["/generate"] * 2
    assert router.counted() == {"requests": 1, "retries": 0, "failed": 0}


def _leave_after_call(router: Router, pair: tuple[FakeEngine, FakeEngine], *, stream: bool) -> None:
    host, port = router.http.base_url.host, router.http.base_url.port
    content = json.dumps({"text": "a", "stream": stream}).encode()
    with socket.create_connection((host, port or 80)) as client:
        head = f"POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: {len(content)}\r\n\r\n"
        client.sendall(head.encode() + content)
        for engine in pair:
            engine.calls.get(timeout=PATIENCE_S)


def test_a_client_that_leaves_a_stream_closes_it(
    place: Hall, pair: tuple[FakeEngine, FakeEngine], router: Router
) -> None:
    place.call(pair[1].flows.clear)
    with router.http.stream("POST", "/generate", json={"text": "a", "stream": True}) as response:
        assert next(response.iter_lines()).startswith("data: ")
    pair[1].closed.get(timeout=PATIENCE_S)


# --- aborts


def test_an_abort_goes_to_both_sides_and_ends_the_request(
    pair: tuple[FakeEngine, FakeEngine], router: Router
) -> None:
    prefill, decode = pair
    prefill.hangs = True
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(router.generate, rid="r")
        prefill.calls.get(timeout=PATIENCE_S), decode.calls.get(timeout=PATIENCE_S)
        assert router.http.post("/abort_request", json={"rid": "r"}).status_code == OK
        assert waiting.result(PATIENCE_S).json()["meta_info"]["finish_reason"]["type"] == "abort"
    assert [engine.aborted.get(timeout=PATIENCE_S) for engine in pair] == [{"rid": "r"}] * 2


@pytest.mark.parametrize("named", [{"rid": "r"}, {"rid": "r_1"}, {"abort_all": True}])
def test_an_aborted_request_is_not_tried_again(named: dict[str, Any], place: Hall) -> None:
    prefill, decode = place.pair()
    decode.hangs = prefill.hangs = True
    with routed([prefill, decode]) as router, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(router.generate, text=["a", "b"], rid="r")
        prefill.calls.get(timeout=PATIENCE_S), decode.calls.get(timeout=PATIENCE_S)
        assert router.http.post("/abort_request", json=named).status_code == OK
        place.die(prefill)
        response = waiting.result(PATIENCE_S)
    assert (response.status_code, attempts(response)) == (502, "1")


@pytest.mark.parametrize("named", [{"rid": "r"}, {"abort_all": True}])
@pytest.mark.parametrize(
    "fields", [{"rid": "r"}, {"rid": "r", "stream": True}, {"rid": "r", "text": ["a", "b"]}]
)
def test_an_abort_is_an_answer_however_late(
    named: dict[str, Any],
    fields: dict[str, Any],
    place: Hall,
    pair: tuple[FakeEngine, FakeEngine],
    router: Router,
) -> None:
    """The prefill side complains first."""
    prefill, decode = pair
    decode.tarries = LATER_S
    place.call(prefill.steps.clear)
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(router.generate, **fields)
        prefill.calls.get(timeout=PATIENCE_S), decode.calls.get(timeout=PATIENCE_S)
        aborting = pool.submit(router.http.post, "/abort_request", json=named)
        assert decode.aborted.get(timeout=PATIENCE_S) == named
        place.call(prefill.steps.set)
        assert aborting.result(PATIENCE_S).status_code == OK
        response = waiting.result(PATIENCE_S)
    assert (response.status_code, attempts(response)) == (OK, "1")
    assert '"abort"' in response.text
    assert router.counted() == {"requests": 1, "retries": 0, "failed": 0}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"rid": "r"}, {"rid": "r"}),
        ({"rid": "r", "stream": True}, {"rid": "r"}),
        ({"rid": "r"}, {"abort_all": True}),
        ({"stream": True}, {"abort_all": True}),
        ({}, {"abort_all": True}),
    ],
)
def test_an_abort_ends_a_request_that_the_decode_side_has_yet_to_read(
    fields: dict[str, Any],
    named: dict[str, Any],
    place: Hall,
    pair: tuple[FakeEngine, FakeEngine],
    router: Router,
) -> None:
    prefill, decode = pair
    place.call(decode.reads.clear)
    place.call(prefill.steps.clear)
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(router.generate, **fields)
        prefill.calls.get(timeout=PATIENCE_S), decode.calls.get(timeout=PATIENCE_S)
        aborting = pool.submit(router.http.post, "/abort_request", json=named)
        assert decode.aborted.get(timeout=PATIENCE_S) == named
        place.call(decode.reads.set)
        assert aborting.result(PATIENCE_S).status_code == OK
        place.call(prefill.steps.set)
        response = waiting.result(PATIENCE_S)
    assert (response.status_code, attempts(response)) == (OK, "1")
    assert '"abort"' in response.text
    assert router.counted() == {"requests": 1, "retries": 0, "failed": 0}


def test_an_abort_on_the_prefill_engine_alone_is_not_undone(
    pair: tuple[FakeEngine, FakeEngine], router: Router
) -> None:
    prefill, decode = pair
    decode.refusals = [(502, "prefill rank 0 gave it up")]
    prefill.aborts_itself = True
    response = router.generate()
    assert (response.status_code, attempts(response)) == (502, "1")
    assert message(response) == f"prefill engine {prefill.url}: the request was aborted there"


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"abort_all": False},
        {"abort_all": 1},
        {"rid": ""},
        {"rid": 5},
        {"rid": ["r"]},
        {"rid": {"r": 1}},
        {"rid": "r", "abort_all": True},
        {"rid": "r", "why": "x"},
    ],
)
def test_an_abort_that_is_refused_touches_nothing(
    wrong: dict[str, Any], place: Hall, pair: tuple[FakeEngine, FakeEngine], router: Router
) -> None:
    response, answer = _abort_while_failing(place, pair, router, wrong, rid="r")
    assert (response.status_code, response.json()["error"]["type"]) == (400, "BadRequestError")
    assert (answer.status_code, attempts(answer)) == (OK, "2")
    assert all(engine.aborted.empty() or "why" not in engine.aborted.get() for engine in pair)


@pytest.mark.parametrize("named", ["r_0", "r_1", "r_", "r_x", "rr", "q"])
def test_an_abort_of_another_rid_touches_nothing(
    named: str, place: Hall, pair: tuple[FakeEngine, FakeEngine], router: Router
) -> None:
    response, answer = _abort_while_failing(place, pair, router, {"rid": named}, rid="r")
    assert response.status_code == OK
    assert (answer.status_code, attempts(answer)) == (OK, "2")


def _abort_while_failing(
    place: Hall,
    pair: tuple[FakeEngine, FakeEngine],
    router: Router,
    body: dict[str, Any],
    **fields: Any,
) -> tuple[httpx.Response, httpx.Response]:
    """The answers of an abort, and of a request whose first attempt fails after it."""
    pair[0].refusals = [(503, "not now")]
    place.call(pair[0].judges.clear)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(router.generate, **fields)
        pair[0].calls.get(timeout=PATIENCE_S), pair[1].calls.get(timeout=PATIENCE_S)
        response = router.http.post("/abort_request", json=body)
        place.call(pair[0].judges.set)
        return response, waiting.result(PATIENCE_S)


# --- deadlines


@pytest.mark.parametrize("side", [0, 1])
def test_the_side_that_hangs_is_named_at_the_deadline(side: int, place: Hall) -> None:
    pair = place.pair()
    with routed(pair, "--request-timeout", "2") as router, ThreadPoolExecutor(1) as pool:
        for engine in pair:
            engine.hangs = True
        waiting = pool.submit(router.generate)
        pair[0].calls.get(timeout=PATIENCE_S), pair[1].calls.get(timeout=PATIENCE_S)
        place.call(pair[side].runs.clear)
        response = waiting.result(PATIENCE_S)
        assert (response.status_code, attempts(response)) == (504, "1")
        late = f"no answer within 2 s: {pair[side].side.value} engine {pair[side].url} had not answered"
        assert message(response).startswith(late)
        assert pair[1 - side].url not in message(response)
        for engine in pair:
            engine.closed.get(timeout=PATIENCE_S)


def test_an_engine_that_accepts_and_never_answers_is_named(place: Hall) -> None:
    prefill, decode = place.pair()
    with routed([prefill, decode], "--request-timeout", "2") as router:
        place.call(prefill.runs.clear)
        response = router.generate()
        assert response.status_code == 504
        assert prefill.url in message(response) and decode.url not in message(response)
        place.call(prefill.runs.set)
        assert router.generate().status_code == OK


def test_a_prefill_side_that_has_answered_is_not_waited_for(place: Hall) -> None:
    prefill, decode = place.pair()
    decode.hangs = True
    with routed([prefill, decode], "--request-timeout", "2") as router:
        prefill.refusals = [(200, "")]
        response = router.generate()
    assert response.status_code == 504
    assert f"decode engine {decode.url} had not answered, though GET /health is" in message(response)
    assert prefill.url not in message(response)


def test_the_deadline_ends_a_stream_with_an_error(place: Hall) -> None:
    prefill, decode = place.pair()
    place.call(decode.flows.clear)
    with routed([prefill, decode], "--request-timeout", "2") as router:
        with router.http.stream("POST", "/generate", json={"text": "a", "stream": True}) as response:
            told = events(response)
    assert told[0]["number"] == 0
    assert told[-1]["error"]["code"] == 504
    assert decode.url in told[-1]["error"]["message"]
    decode.closed.get(timeout=PATIENCE_S)


# --- state


def test_server_info_is_the_decode_sides_with_the_pair(
    place: Hall, pair: tuple[FakeEngine, FakeEngine], router: Router
) -> None:
    prefill, decode = pair
    info = router.info()
    assert info["nonce"] == decode.nonce
    assert info["router"] == {
        "url": router.url,
        "nonce": router.nonce,
        "pid": router.process.pid,
        "request_timeout": 300.0,
        "attempts": 3,
        "counters": router.before,
    }
    assert info["pair"] == {
        "prefill": [{"url": prefill.url, "healthy": True, "nonce": prefill.nonce}],
        "decode": [{"url": decode.url, "healthy": True, "nonce": decode.nonce}],
    }
    place.die(prefill)
    (told,) = router.info()["pair"]["prefill"]
    assert (told["healthy"], told["nonce"]) == (False, prefill.nonce)
    assert "nothing answers there" in told["trouble"]


def test_questions_go_to_the_decode_side(pair: tuple[FakeEngine, FakeEngine], router: Router) -> None:
    for path in ("/kv_rows", "/v1/models"):
        assert router.http.get(path).json() == {"nonce": pair[1].nonce}
    page = router.http.get("/metrics").text
    assert page.startswith(f"# {pair[1].nonce}\n")
    assert f"\nharness:router_requests_total {router.before['requests']}\n" in page


@pytest.mark.parametrize("side", [0, 1])
def test_health_needs_both_sides(
    side: int, place: Hall, pair: tuple[FakeEngine, FakeEngine], router: Router
) -> None:
    assert router.http.get("/health").status_code == OK
    assert router.http.get("/health_generate").status_code == OK
    assert pair[side].calls.get(timeout=PATIENCE_S).body["sampling_params"]["max_new_tokens"] == 1
    place.die(pair[side])
    response = router.http.get("/health")
    assert response.status_code == 503
    assert pair[side].url in message(response) and pair[1 - side].url not in message(response)
    assert router.http.get("/health_generate").status_code == 502


@pytest.mark.parametrize("side", [0, 1])
def test_an_engine_that_is_of_no_pair_any_more_is_not_healthy(
    side: int, place: Hall, pair: tuple[FakeEngine, FakeEngine], router: Router
) -> None:
    place.die(pair[side])
    place.restart(pair[side], nonce="other", page_size=32)
    refused = refuse_pair(pair[0].shape, pair[1].shape)
    told = [engine for engines in router.info()["pair"].values() for engine in engines]
    assert [engine["healthy"] for engine in told] == [False, False]
    assert all(str(refused) in engine["trouble"] for engine in told)
    response = router.http.get("/health")
    assert response.status_code == 503
    assert str(refused) in message(response)
    place.die(pair[side])
    place.restart(pair[side], nonce="as before")
    assert router.http.get("/health").status_code == OK


def test_one_pair_is_enough_to_be_healthy(place: Hall) -> None:
    prefill, decode = place.pair()
    other = place.engine(Side.DECODE)
    with routed([prefill, decode, other]) as router:
        place.die(other)
        place.restart(other, nonce="other", page_size=32)
        assert router.http.get("/health").status_code == OK
        told = router.info()["pair"]
        healthy = {engine["url"]: engine["healthy"] for engines in told.values() for engine in engines}
        assert healthy == {prefill.url: True, decode.url: True, other.url: False}
        assert [attempts(router.generate()) for _ in range(4)] == ["1"] * 4
        # Both sides have an engine that is well, and these two are no pair.
        place.die(decode)
        response = router.http.get("/health")
        assert response.status_code == 503
        assert f"{decode.url}: nothing answers" in message(response)
        assert str(refuse_pair(prefill.shape, other.shape)) in message(response)


def test_every_engine_is_flushed(place: Hall, pair: tuple[FakeEngine, FakeEngine], router: Router) -> None:
    assert router.http.post("/flush_cache").status_code == OK
    pair[1].hangs = True
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(router.generate, rid="r")
        pair[0].calls.get(timeout=PATIENCE_S), pair[1].calls.get(timeout=PATIENCE_S)
        response = router.http.post("/flush_cache")
        assert (response.status_code, response.text) == (400, f"prefill engine {pair[0].url}: Not flushed\n")
        router.http.post("/abort_request", json={"rid": "r"})
        place.die(pair[1])
        assert waiting.result(PATIENCE_S).status_code == 502


def test_without_a_decode_side_questions_name_it(
    place: Hall, pair: tuple[FakeEngine, FakeEngine], router: Router
) -> None:
    place.die(pair[1])
    response = router.http.get("/server_info")
    assert response.status_code == 502
    assert pair[1].url in message(response)


def test_an_unknown_path_is_told_in_the_engines_shape(router: Router) -> None:
    assert router.http.get("/nothing").json()["error"]["code"] == 404
