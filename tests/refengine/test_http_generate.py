"""`/generate`: shapes, streams, stops, refusals, aborts, clients that leave."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import httpx
import pytest
from engine_process import PATIENCE_S, RunningEngine, generate_body, running

from harness.refengine.config import EngineConfig

LONG = 4000


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    with running(
        EngineConfig(tp=2, dcp=2, page_size=4), directory=tmp_path_factory.mktemp("engine")
    ) as engine:
        yield engine


def post(engine: RunningEngine, body: Any) -> httpx.Response:
    return engine.http.post("/generate", json=body)


def events(engine: RunningEngine, path: str, body: Any) -> list[Any]:
    """All events of a stream, which must end with [DONE]."""
    with engine.http.stream("POST", path, json=body) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in response.iter_lines() if line]
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def wait_idle(engine: RunningEngine) -> Any:
    """Ask until nothing runs: that a client has left is noticed by the front a moment later."""
    for _ in range(200):
        info = engine.info()
        if info["running"] == info["waiting"] == 0:
            return info
    pytest.fail(f"still busy: {info['running']} running, {info['waiting']} waiting")


def test_the_shape_of_an_answer(engine: RunningEngine) -> None:
    body = {
        **generate_body("hello", max_new_tokens=4, rid="mine"),
        "logprob_start_len": 0,
        "top_logprobs_num": 2,
    }
    answer = post(engine, body).json()
    meta = answer["meta_info"]
    assert meta["id"] == "mine"
    assert meta["finish_reason"] == {"type": "length", "length": 4}
    assert (meta["prompt_tokens"], meta["completion_tokens"], meta["cached_tokens"]) == (6, 4, 0)
    assert [entry[1] for entry in meta["input_token_logprobs"]] == [256, *b"hello"]
    assert meta["input_token_logprobs"][0] == [None, 256, None]
    assert all(entry[0] < 0 for entry in meta["input_token_logprobs"][1:])
    assert [top and len(top) for top in meta["input_top_logprobs"]] == [None, 2, 2, 2, 2, 2]
    assert [entry[1] for entry in meta["output_token_logprobs"]] == answer["output_ids"]
    for (logprob, token, _), top in zip(
        meta["output_token_logprobs"], meta["output_top_logprobs"], strict=True
    ):
        assert top[0] == [logprob, token, None]
        assert len(top) == 2


def test_prompt_logprobs_are_those_of_the_same_tokens_as_an_answer(engine: RunningEngine) -> None:
    """Long enough for two chunks; the model must judge tokens alike whether it reads or writes them."""
    prompt = [256, *b"x" * 250]
    written = engine.generate(prompt, max_new_tokens=12)
    body = generate_body([*prompt, *written["output_ids"]], max_new_tokens=1)
    read = post(engine, {**body, "logprob_start_len": len(prompt)}).json()
    expected = [entry[0] for entry in written["meta_info"]["output_token_logprobs"]]
    found = [entry[0] for entry in read["meta_info"]["input_token_logprobs"]]
    assert found == pytest.approx(expected, abs=1e-4)


def test_no_prompt_logprobs_unless_asked(engine: RunningEngine) -> None:
    assert engine.generate("hello", max_new_tokens=1)["meta_info"]["input_token_logprobs"] == []
    body = {**generate_body("hello", max_new_tokens=1), "return_logprob": False}
    assert "output_token_logprobs" not in post(engine, body).json()["meta_info"]


def test_a_list_is_answered_by_a_list_in_its_order(engine: RunningEngine) -> None:
    texts = ["a", "bb", "ccc"]
    body = {"text": texts, "sampling_params": {"temperature": 0, "max_new_tokens": 3}, "rid": "r"}
    answers = post(engine, body).json()
    assert [answer["meta_info"]["prompt_tokens"] for answer in answers] == [2, 3, 4]
    assert [answer["meta_info"]["id"] for answer in answers] == ["r_0", "r_1", "r_2"]
    assert isinstance(post(engine, {**body, "text": ["a"]}).json(), list)


def test_a_stream_grows_to_the_answer_without_it(engine: RunningEngine) -> None:
    body = generate_body("grow", max_new_tokens=40)
    whole = post(engine, body).json()
    grown = events(engine, "/generate", {**body, "stream": True})
    assert [event["meta_info"]["completion_tokens"] for event in grown] == list(range(1, 41))
    texts = [event["text"] for event in grown]
    assert all(later.startswith(earlier) for earlier, later in pairwise(texts))
    last = grown[-1]
    del last["meta_info"]["id"], whole["meta_info"]["id"]
    assert last == whole


def test_a_stream_of_several_prompts_tells_them_apart(engine: RunningEngine) -> None:
    body = {
        "text": ["a", "b"],
        "sampling_params": {"temperature": 0, "max_new_tokens": 3, "ignore_eos": True},
    }
    grown = events(engine, "/generate", {**body, "stream": True})
    plain = post(engine, body).json()
    for index in (0, 1):
        mine = [event for event in grown if event["index"] == index]
        assert [event["meta_info"]["completion_tokens"] for event in mine] == [1, 2, 3]
        assert mine[-1]["output_ids"] == plain[index]["output_ids"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_ends_the_answer_before_it(stream: bool, engine: RunningEngine) -> None:
    whole = engine.generate("stop here", max_new_tokens=60)["text"]
    stop = whole[10:12]
    body = generate_body("stop here", max_new_tokens=60, stop=["never found", stop])
    answer = (
        events(engine, "/generate", {**body, "stream": True})[-1] if stream else post(engine, body).json()
    )
    assert answer["text"] == whole[: whole.index(stop)]
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
    assert answer["meta_info"]["completion_tokens"] == len(answer["output_ids"]) < 60
    assert engine.info()["running"] == 0


def test_end_of_text_stops_unless_it_is_ignored(engine: RunningEngine) -> None:
    """At a high temperature all 258 tokens are about as likely, the end mark among them."""

    def draws(*, ignore_eos: bool) -> list[Any]:
        common = {"temperature": 50.0, "max_new_tokens": 40, "ignore_eos": ignore_eos}
        params = [{**common, "sampling_seed": seed} for seed in range(32)]
        return list(post(engine, {"text": ["e"] * 32, "sampling_params": params}).json())

    stopped = 0
    for ended, going_on in zip(draws(ignore_eos=False), draws(ignore_eos=True), strict=True):
        tokens = ended["output_ids"]
        assert len(going_on["output_ids"]) == 40
        assert going_on["output_ids"][: len(tokens)] == tokens
        assert 257 not in tokens[:-1]
        if tokens[-1] == 257:
            stopped += 1
            assert ended["meta_info"]["finish_reason"] == {"type": "stop", "matched": 257}
    assert stopped > 0


OK = {"text": "x", "sampling_params": {"max_new_tokens": 1}}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "give either text or input_ids"),
        ({**OK, "input_ids": [1]}, "give either text or input_ids"),
        ({**OK, "text": ""}, "the prompt is empty"),
        ({"input_ids": []}, "the prompt has no tokens"),
        ({"input_ids": [[]]}, "the prompt has no tokens"),
        ({"text": []}, "the list of prompts is empty"),
        ({"text": [], "stream": True}, "the list of prompts is empty"),
        ({"input_ids": [1, 258]}, "token 258 at place 1"),
        ({"input_ids": [1, -1]}, "token -1 at place 1"),
        ({"input_ids": [1, "2"]}, "input_ids"),
        ({**OK, "txt": "y"}, "txt: Extra inputs are not permitted"),
        ({**OK, "sampling_params": {"max_tokens": 3}}, "sampling_params"),
        ({**OK, "sampling_params": {"top_p": 0.5}}, "only 1.0 is supported, found 0.5"),
        ({**OK, "sampling_params": {"top_k": 5}}, "only -1 is supported, found 5"),
        ({**OK, "sampling_params": {"temperature": -1}}, "greater than or equal to 0"),
        ({**OK, "sampling_params": {"max_new_tokens": 0}}, "greater than or equal to 1"),
        ({**OK, "sampling_params": {"stop": ""}}, "at least 1 character"),
        ({**OK, "sampling_params": {"max_new_tokens": 10**30}}, "context of 8192"),
        ({**OK, "sampling_params": [{}, {}]}, "sampling_params lists 2 values for 1 prompts"),
        ({**OK, "rid": ["a", "b"]}, "rid lists 2 values for 1 prompts"),
        ({**OK, "return_logprob": True, "logprob_start_len": -2}, "greater than or equal to -1"),
        (
            {**OK, "return_logprob": True, "logprob_start_len": 3},
            "logprob_start_len 3 is past the prompt's 2",
        ),
        ({"text": ["x", "y"], "return_logprob": True, "logprob_start_len": [0, 9]}, "logprob_start_len 9"),
        ({"text": ["x", "y"], "rid": ["a", "a"]}, "rid 'a' is in flight"),
    ],
)
def test_what_is_wrong_is_refused_with_400_and_says_why(body: Any, said: str, engine: RunningEngine) -> None:
    response = post(engine, body)
    assert response.status_code == 400
    assert said in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            {**OK, "sampling_params": {"max_new_tokens": 1.5}},
            "sampling_params.max_new_tokens: Input should be a valid integer",
        ),
        (
            {"text": ["x", "y"], "sampling_params": [{}, {"top_p": 2}]},
            "sampling_params.1.top_p: only 1.0 is supported, found 2.0",
        ),
        ({**OK, "sampling_params": {"Top": 1}}, "sampling_params.Top: Extra inputs are not permitted"),
        ({"input_ids": [[1], [2, "3"]]}, "input_ids.1.1: Input should be a valid integer"),
        ({**OK, "top_logprobs_num": [33]}, "top_logprobs_num.0: Input should be less than or equal to 32"),
    ],
)
def test_a_wrong_value_is_told_once_and_by_its_path(body: Any, message: str, engine: RunningEngine) -> None:
    """Not once for each type that the field could have had."""
    assert post(engine, body).json()["error"]["message"] == message


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"",
        b"[1, 2]",
        b'{"text": "\xff"}',
        b'{"text": "\\ud800"}',
        b'{"text": "x", "\\ud800": 1}',
        b'{"text": "x", "rid": "\\ud800"}',
        b'{"text": "x", "sampling_params": {"temperature": NaN}}',
        b'{"text": "x", "sampling_params": {"temperature": 1e999}}',
        b'{"text": "x", "sampling_params": {"max_new_tokens": ' + b"9" * 5000 + b"}}",
        b"[" * 100_000,
    ],
    ids=[
        "cut",
        "empty",
        "list",
        "latin1",
        "surrogate",
        "surrogate-key",
        "surrogate-rid",
        "nan",
        "inf",
        "digits",
        "deep",
    ],
)
def test_a_body_that_is_no_request_is_refused_with_400(content: bytes, engine: RunningEngine) -> None:
    response = engine.http.post("/generate", content=content, headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert response.json()["error"]["message"]
    assert engine.http.get("/health").status_code == 200


def test_one_refused_prompt_refuses_the_list_and_leaves_nothing_running(engine: RunningEngine) -> None:
    body = {"text": ["x", "y"], "sampling_params": [{"max_new_tokens": 500}, {"max_new_tokens": 9000}]}
    response = post(engine, body)
    assert response.status_code == 400
    wait_idle(engine)


def test_a_stream_is_refused_with_a_status_and_not_in_the_stream(engine: RunningEngine) -> None:
    response = post(engine, generate_body("x", stream=True, max_new_tokens=9000))
    assert response.status_code == 400
    assert "max_new_tokens 9000" in response.json()["error"]["message"]


def test_a_prompt_beyond_the_context_never_reaches_the_ranks(engine: RunningEngine) -> None:
    """Megabytes would hold up every rank, only to be refused there."""
    before = engine.info()["step"]
    for body in (OK | {"text": "x" * 1_000_000}, {"input_ids": [[1], [1] * 100_000]}):
        response = post(engine, body)
        assert response.status_code == 400
        assert "context of 8192" in response.json()["error"]["message"]
    assert engine.info()["step"] == before + 1


class Background:
    """A long answer in a thread of its own; `begun` once its first token has arrived."""

    def __init__(self, engine: RunningEngine, rid: str) -> None:
        self.last: Any = None
        self.begun = threading.Event()
        self._engine = engine
        self._body = generate_body("long", stream=True, rid=rid, max_new_tokens=LONG)
        self.thread = threading.Thread(target=self._read)
        self.thread.start()
        assert self.begun.wait(PATIENCE_S)

    def _read(self) -> None:
        with self._engine.http.stream("POST", "/generate", json=self._body) as response:
            for line in response.iter_lines():
                if line.startswith("data: {"):
                    self.last = json.loads(line.removeprefix("data: "))
                    self.begun.set()


def test_an_abort_ends_the_answer_and_frees_its_rows(engine: RunningEngine) -> None:
    long = Background(engine, "to-abort")
    busy = engine.http.post("/flush_cache")
    twice = post(engine, generate_body("x", rid="to-abort", max_new_tokens=1))
    assert engine.http.post("/abort_request", json={"rid": "to-abort"}).status_code == 200
    long.thread.join(PATIENCE_S)
    assert long.last["meta_info"]["finish_reason"]["type"] == "abort"
    assert 1 <= long.last["meta_info"]["completion_tokens"] < LONG
    assert busy.status_code == 400
    assert twice.status_code == 400
    assert "rid 'to-abort' is in flight" in twice.json()["error"]["message"]
    assert all(rank["kv_rows_free"] == rank["kv_rows"] for rank in engine.info()["ranks"])
    assert engine.http.get("/flush_cache").status_code == 200
    assert post(engine, generate_body("x", rid="to-abort", max_new_tokens=1)).status_code == 200


def test_a_list_is_aborted_by_the_rid_it_was_given(engine: RunningEngine) -> None:
    """Its requests are many-1_0 and many-1_1; many-1 alone, and many-1_x, are others."""
    answers: list[Any] = []
    body = generate_body([[1], [2]], rid="many-1", max_new_tokens=LONG // 2)
    listed = threading.Thread(target=lambda: answers.extend(post(engine, body).json()))
    listed.start()
    other = Background(engine, "many-1_x")
    while len(engine.rows()["requests"]) < 3:
        pass
    engine.http.post("/abort_request", json={"rid": "many-1"})
    listed.join(PATIENCE_S)
    assert [one["meta_info"]["finish_reason"]["type"] for one in answers] == ["abort", "abort"]
    assert [one["rid"] for one in engine.rows()["requests"]] == ["many-1_x"]
    engine.http.post("/abort_request", json={"rid": "", "abort_all": True})
    other.thread.join(PATIENCE_S)
    assert other.last["meta_info"]["finish_reason"]["type"] == "abort"


def test_aborting_what_is_not_there_is_no_error(engine: RunningEngine) -> None:
    assert engine.http.post("/abort_request", json={"rid": "nobody"}).status_code == 200
    assert engine.http.post("/abort_request", json={}).status_code == 400
    assert engine.http.post("/abort_request", json={"rid": "x", "abort_all": True}).status_code == 400


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_takes_its_request_with_it(stream: bool, engine: RunningEngine) -> None:
    body = json.dumps(generate_body("leaving", stream=stream, rid="left", max_new_tokens=LONG)).encode()
    with socket.create_connection(("127.0.0.1", engine.port), timeout=PATIENCE_S) as client:
        client.sendall(b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
        client.sendall(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        while not engine.rows()["requests"]:
            pass
    info = wait_idle(engine)
    assert all(rank["kv_rows_free"] == rank["kv_rows"] for rank in info["ranks"])


def test_a_client_that_does_not_read_holds_up_nobody(engine: RunningEngine) -> None:
    body = json.dumps({**generate_body("slow", stream=True, rid="slow", max_new_tokens=LONG)}).encode()
    with socket.create_connection(("127.0.0.1", engine.port), timeout=PATIENCE_S) as client:
        client.sendall(b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
        client.sendall(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        for _ in range(5):
            assert len(engine.generate("quick", max_new_tokens=3)["output_ids"]) == 3
    wait_idle(engine)
