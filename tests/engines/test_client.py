"""The client against a real socket: every way in which an engine fails to answer has its own error."""

from __future__ import annotations

import json
import threading

import pytest
from fake_server import Respond, serving

from harness.engines import EngineClient, GenerateRequest
from harness.errors import DeadlineError, EngineDiedError, EngineError, RequestRefusedError

REQUEST = GenerateRequest(input_ids=(1, 2, 3), max_new_tokens=2)
ANSWER = {
    "text": "",
    "output_ids": [5, 6],
    "meta_info": {
        "output_token_logprobs": [[-0.5, 5, None], [-0.25, 6, None]],
        "input_token_logprobs": [[None, 1, None], [-1.5, 2, None], [-2.5, 3, None]],
        "finish_reason": {"type": "length", "length": 2},
        "prompt_tokens": 3,
    },
}


def always(status: int, body: object) -> Respond:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return lambda path, sent: (status, raw)


def test_an_answer_is_tokens_and_logprobs() -> None:
    with serving(always(200, ANSWER)) as url:
        answer = EngineClient(url).generate(REQUEST)
    assert (answer.tokens, answer.logprobs) == ((5, 6), (-0.5, -0.25))
    assert answer.prompt_logprobs == (-1.5, -2.5)
    assert (answer.finish_reason, answer.prompt_tokens) == ("length", 3)


def test_a_batch_is_one_request_and_keeps_its_order() -> None:
    sent: list[dict[str, object]] = []

    def respond(path: str, body: dict[str, object]) -> tuple[int, bytes]:
        sent.append(body)
        return 200, json.dumps([ANSWER, ANSWER]).encode()

    with serving(respond) as url:
        assert len(EngineClient(url).generate_batch([REQUEST, REQUEST])) == 2
    (body,) = sent
    assert body["input_ids"] == [[1, 2, 3], [1, 2, 3]]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ([ANSWER], "1 of 2"),
        ({"meta_info": {}}, "1 of 2"),
        ([{"meta_info": {}}, ANSWER], "output_token_logprobs"),
        ([{"meta_info": {**ANSWER["meta_info"], "output_token_logprobs": [["x", 5]]}}, ANSWER], "x"),  # type: ignore[dict-item]
        (b"no json", "no JSON"),
    ],
)
def test_an_answer_that_lacks_something_is_an_error(body: object, words: str) -> None:
    with serving(always(200, body)) as url, pytest.raises(EngineError, match=words):
        EngineClient(url).generate_batch([REQUEST, REQUEST])


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "too long"}},
        {"error": "too long"},
        {"detail": "too long"},
        {"detail": [{"loc": ["body"], "msg": "too long"}]},
        b"too long",
        ["too long"],
    ],
)
def test_a_refusal_carries_status_and_the_engines_words(body: object) -> None:
    with serving(always(400, body)) as url, pytest.raises(RequestRefusedError, match="too long") as caught:
        EngineClient(url).generate(REQUEST)
    assert caught.value.status == 400


def test_a_refusal_of_a_stream_is_a_refusal() -> None:
    with serving(always(429, {"error": "busy"})) as url, pytest.raises(RequestRefusedError, match="busy"):
        list(EngineClient(url).stream(REQUEST, rid="a"))


def test_a_stream_counts_tokens() -> None:
    events = "".join(f'data: {{"meta_info": {{"completion_tokens": {n}}}}}\n\n' for n in (1, 2))
    with serving(always(200, events.encode() + b"data: [DONE]\n\n")) as url:
        assert list(EngineClient(url).stream(REQUEST, rid="a")) == [1, 2]


def test_a_dropped_connection_asks_what_died() -> None:
    with serving(lambda path, body: None) as url, pytest.raises(EngineDiedError, match="rank 3 was killed"):
        EngineClient(url, why_dead=lambda: "rank 3 was killed").server_info()


def test_a_front_that_outlives_its_rank_asks_what_died() -> None:
    with serving(always(503, {"error": {"message": "rank 1 has ended"}})) as url:
        with pytest.raises(EngineDiedError, match="killed by SIGKILL"):
            EngineClient(url, why_dead=lambda: "rank 1 was killed by SIGKILL").health()
        with pytest.raises(RequestRefusedError, match="rank 1 has ended"):
            EngineClient(url).health()


def test_a_server_that_is_not_there_is_named() -> None:
    with serving(always(200, {})) as url:
        gone = url
    with pytest.raises(EngineDiedError, match=gone):
        EngineClient(gone).health()


def test_the_deadline_that_passed_is_named() -> None:
    held = threading.Event()

    def respond(path: str, body: dict[str, object]) -> tuple[int, bytes]:
        held.wait(30)
        return 200, b"{}"

    with serving(respond) as url:
        client = EngineClient(url)
        with pytest.raises(DeadlineError) as caught, client.deadline("check parity", 0.05):
            client.server_info()
        held.set()
    assert caught.value.scope == "check parity"


def test_no_call_is_made_after_the_deadline() -> None:
    calls: list[str] = []

    def respond(path: str, body: dict[str, object]) -> tuple[int, bytes]:
        calls.append(path)
        return 200, b"{}"

    with serving(respond) as url:
        client = EngineClient(url)
        with pytest.raises(DeadlineError), client.deadline("check rows", 0.0):
            client.health()
    assert calls == []


@pytest.mark.parametrize(
    "body", [{}, {"max_total_num_tokens": "many"}, {"max_total_num_tokens": 1, "ranks": [{}]}]
)
def test_a_server_info_that_lacks_facts_is_an_error(body: object) -> None:
    with serving(always(200, body)) as url, pytest.raises(EngineError, match="/server_info"):
        EngineClient(url).server_info()


def test_an_engine_that_tells_no_ranks_has_no_proof() -> None:
    body = {"max_total_num_tokens": 64, "tp_size": 4, "page_size": 1}
    with serving(always(200, body)) as url:
        info = EngineClient(url).server_info()
    assert info.ranks is None
    assert info.widened_page_size == 1
