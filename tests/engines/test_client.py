"""The client against a real socket: every way in which an engine fails to answer has its own error."""

from __future__ import annotations

import json
import threading

import pytest
from fake_server import Respond, serving

from harness.engines import Completion, EngineClient, GenerateRequest
from harness.errors import DeadlineError, EngineDiedError, EngineError, NoAnswerError, RequestRefusedError

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


def test_an_error_in_a_stream_is_a_refusal_in_the_servers_words() -> None:
    said = b'data: {"error": {"message": "the prefill engine has gone", "type": "HandoverError", "code": 502}}\n\n'
    with serving(always(200, said + b"data: [DONE]\n\n")) as url:
        with pytest.raises(RequestRefusedError, match="the prefill engine has gone") as caught:
            list(EngineClient(url).stream(REQUEST, rid="a"))
    assert caught.value.status == 502


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b'data: {"meta_info": {"completion_tokens": 1}}\n\n', "broke a stream off"),
        (b"", "broke a stream off"),
        (b'data: {"text": "x"}\n\ndata: [DONE]\n\n', "without its count of tokens"),
    ],
)
def test_a_stream_that_is_broken_off_or_says_nothing_is_an_error(raw: bytes, words: str) -> None:
    with serving(always(200, raw)) as url, pytest.raises(EngineError, match=words):
        list(EngineClient(url).stream(REQUEST, rid="a"))


def test_a_client_beside_another_shares_its_deadline_and_what_it_knows() -> None:
    with serving(lambda path, body: None) as url:
        client = EngineClient("http://router.invalid", why_dead=lambda: "the decode engine died")
        with pytest.raises(EngineDiedError, match="the decode engine died"):
            client.beside(url).server_info()
        with client.deadline("check transfer", 0.0), pytest.raises(DeadlineError, match="check transfer"):
            client.beside(url).server_info()


def test_a_dropped_connection_asks_what_died() -> None:
    with serving(lambda path, body: None) as url, pytest.raises(EngineDiedError, match="rank 3 was killed"):
        EngineClient(url, why_dead=lambda: "rank 3 was killed").server_info()


@pytest.mark.parametrize("status", [502, 503])
def test_a_front_that_outlives_its_rank_asks_what_died(status: int) -> None:
    with serving(always(status, {"error": {"message": "rank 1 has ended"}})) as url:
        with pytest.raises(EngineDiedError, match="killed by SIGKILL"):
            EngineClient(url, why_dead=lambda: "rank 1 was killed by SIGKILL").health()
        with pytest.raises(RequestRefusedError, match="rank 1 has ended"):
            EngineClient(url).health()


def test_a_server_that_is_not_there_is_named() -> None:
    with serving(always(200, {})) as url:
        gone = url
    with pytest.raises(NoAnswerError, match=f"^{gone} cannot be reached: nothing answers there .*refused"):
        EngineClient(gone).health()
    with pytest.raises(EngineDiedError, match=r"^rank 3 was killed$") as caught:
        EngineClient(gone, why_dead=lambda: "rank 3 was killed").health()
    assert not isinstance(caught.value, NoAnswerError)


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


COMPLETION = {
    "choices": [{"index": 0, "text": " 4", "finish_reason": "stop", "logprobs": None}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
}


def completing(completion: object, *, models: object = None, status: int = 200) -> Respond:
    """Answers `/v1/models` with `models` and all else with `completion`."""
    listed = {"data": [{"id": "served"}, {"id": "adapter"}]} if models is None else models
    chosen = {"/v1/models": always(status, listed)}
    return lambda path, sent: chosen.get(path, always(200, completion))(path, sent)


def test_a_completion_is_a_text_and_why_it_ended() -> None:
    with serving(completing(COMPLETION)) as url:
        completion = EngineClient(url).complete("2+2=", max_new_tokens=8)
    assert completion == Completion(text=" 4", tokens=2, finish_reason="stop", prompt_tokens=3)


def test_a_completion_asks_for_the_first_model_once() -> None:
    sent: list[tuple[str, dict[str, object]]] = []
    respond = completing(COMPLETION)

    def listen(path: str, body: dict[str, object]) -> tuple[int, bytes] | None:
        sent.append((path, body))
        return respond(path, body)

    with serving(listen) as url:
        client = EngineClient(url)
        client.complete("2+2=", max_new_tokens=8, stop=["\n"], temperature=0.5)
        client.complete("3+3=", max_new_tokens=8)
    assert [path for path, _ in sent] == ["/v1/models", "/v1/completions", "/v1/completions"]
    body = {"model": "served", "prompt": "2+2=", "max_tokens": 8, "temperature": 0.5, "stop": ["\n"]}
    assert sent[1][1] == body
    assert sent[2][1] == {"model": "served", "prompt": "3+3=", "max_tokens": 8, "temperature": 0.0}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"no json", "no JSON"),
        ([], "asked for"),
        ({}, "choices"),
        ({"choices": []}, "choices"),
        ({"choices": None}, "choices"),
        ({"choices": [{"text": " 4"}]}, "finish_reason"),
        ({"choices": [{"text": " 4", "finish_reason": None}]}, "finish_reason"),
        ({"choices": [{"finish_reason": "stop"}]}, "text"),
        ({"choices": [{"text": 4, "finish_reason": "stop"}]}, "text"),
        ({**COMPLETION, "usage": {"completion_tokens": "two"}}, "two"),
        ({**COMPLETION, "usage": [2]}, "usage"),
    ],
)
def test_a_completion_that_lacks_something_is_an_error(body: object, words: str) -> None:
    with serving(completing(body)) as url, pytest.raises(EngineError, match=words):
        EngineClient(url).complete("2+2=", max_new_tokens=8)


def test_an_engine_that_does_not_count_tokens_still_completes() -> None:
    with serving(completing({"choices": COMPLETION["choices"]})) as url:
        completion = EngineClient(url).complete("2+2=", max_new_tokens=8)
    assert (completion.text, completion.tokens, completion.prompt_tokens) == (" 4", 0, 0)


@pytest.mark.parametrize("models", [{}, {"data": []}, {"data": [{}]}, [], 5])
def test_a_list_of_models_without_a_model_is_an_error(models: object) -> None:
    with serving(completing(COMPLETION, models=models)) as url:
        with pytest.raises(EngineError, match="lists no model"):
            EngineClient(url).complete("2+2=", max_new_tokens=8)


def test_models_that_are_refused_are_asked_for_again() -> None:
    answers = [always(503, {"error": "loading"}), always(200, {"data": [{"id": "served"}]})]

    def respond(path: str, sent: dict[str, object]) -> tuple[int, bytes] | None:
        return (answers.pop(0) if path == "/v1/models" else always(200, COMPLETION))(path, sent)

    with serving(respond) as url:
        client = EngineClient(url)
        with pytest.raises(RequestRefusedError, match="loading"):
            client.complete("2+2=", max_new_tokens=8)
        assert client.complete("2+2=", max_new_tokens=8).text == " 4"


def test_a_completion_of_a_dead_engine_asks_what_died() -> None:
    with serving(lambda path, body: None) as url, pytest.raises(EngineDiedError, match="rank 3 was killed"):
        EngineClient(url, why_dead=lambda: "rank 3 was killed").complete("2+2=", max_new_tokens=8)


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
