"""The OpenAI endpoints and those that tell about the engine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_process import RunningEngine, running

from harness.refengine.config import EngineConfig

CONFIG = EngineConfig(tp=2, dcp=2, served_model_name="served", nonce="n1")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    with running(CONFIG, directory=tmp_path_factory.mktemp("engine")) as engine:
        yield engine


def post(engine: RunningEngine, path: str, body: Any) -> Any:
    response = engine.http.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def chunks(engine: RunningEngine, path: str, body: Any) -> list[Any]:
    with engine.http.stream("POST", path, json={**body, "stream": True}) as response:
        lines = [line for line in response.iter_lines() if line]
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


COMPLETION = {"model": "m", "prompt": "once upon", "max_tokens": 20, "temperature": 0, "ignore_eos": True}
CHAT = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    ],
    "max_tokens": 20,
    "temperature": 0,
    "ignore_eos": True,
}


def test_a_completion_is_the_native_answer_in_another_shape(engine: RunningEngine) -> None:
    native = engine.generate("once upon", max_new_tokens=20)
    found = post(engine, "/v1/completions", {**COMPLETION, "logprobs": 2})
    assert found["object"] == "text_completion"
    assert found["model"] == "m"
    assert found["usage"] == {"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30}
    (choice,) = found["choices"]
    assert (choice["index"], choice["text"], choice["finish_reason"]) == (0, native["text"], "length")
    logprobs = [entry[0] for entry in native["meta_info"]["output_token_logprobs"]]
    assert choice["logprobs"]["token_logprobs"] == pytest.approx(logprobs)
    assert all(len(top) <= 2 for top in choice["logprobs"]["top_logprobs"])
    assert len(choice["logprobs"]["tokens"]) == len(choice["logprobs"]["text_offset"]) == 20


@pytest.mark.parametrize("prompt", [["a", "bc"], [[256, 97], [256, 98, 99]]])
def test_several_prompts_give_several_choices(prompt: Any, engine: RunningEngine) -> None:
    found = post(engine, "/v1/completions", {**COMPLETION, "prompt": prompt})
    alone = [post(engine, "/v1/completions", {**COMPLETION, "prompt": one}) for one in prompt]
    assert [choice["index"] for choice in found["choices"]] == [0, 1]
    assert [c["text"] for c in found["choices"]] == [one["choices"][0]["text"] for one in alone]


def test_a_chat_is_a_completion_of_its_lines(engine: RunningEngine) -> None:
    text = "system: be brief\nuser: hi\nassistant:"
    plain = post(engine, "/v1/completions", {**COMPLETION, "prompt": text})
    found = post(engine, "/v1/chat/completions", {**CHAT, "logprobs": True, "top_logprobs": 3})
    (choice,) = found["choices"]
    assert found["object"] == "chat.completion"
    assert choice["message"] == {"role": "assistant", "content": plain["choices"][0]["text"]}
    content = choice["logprobs"]["content"]
    assert len(content) == 20
    assert all(len(entry["top_logprobs"]) == 3 for entry in content)
    assert (
        bytes(b for entry in content for b in entry["bytes"]).decode(errors="replace")
        == choice["message"]["content"]
    )


@pytest.mark.parametrize(("path", "body"), [("/v1/completions", COMPLETION), ("/v1/chat/completions", CHAT)])
def test_streamed_pieces_joined_are_the_answer(path: str, body: Any, engine: RunningEngine) -> None:
    whole = post(engine, path, body)
    found = chunks(engine, path, {**body, "stream_options": {"include_usage": True}})
    assert found.pop()["usage"] == whole["usage"]
    pieces = [chunk["choices"][0] for chunk in found]
    if "chat" in path:
        assert pieces[0]["delta"]["role"] == "assistant"
        assert (
            "".join(piece["delta"]["content"] for piece in pieces)
            == whole["choices"][0]["message"]["content"]
        )
    else:
        assert "".join(piece["text"] for piece in pieces) == whole["choices"][0]["text"]
    assert [piece["finish_reason"] for piece in pieces] == [None] * (len(pieces) - 1) + ["length"]
    assert len({chunk["id"] for chunk in found}) == 1


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/v1/completions", {**COMPLETION, "prompt": ""}, "the prompt is empty"),
        ("/v1/completions", {**COMPLETION, "prompt": []}, "the prompt is empty"),
        ("/v1/completions", {**COMPLETION, "n": 2}, "only 1 is supported"),
        ("/v1/completions", {**COMPLETION, "best_off": 2}, "best_off: Extra inputs"),
        ("/v1/completions", {**COMPLETION, "max_tokens": 9000}, "max_new_tokens 9000"),
        ("/v1/chat/completions", {**CHAT, "messages": []}, "messages is empty"),
        ("/v1/chat/completions", {**CHAT, "tools": []}, "tools: Extra inputs"),
        ("/v1/chat/completions", {**CHAT, "messages": [{"role": "king", "content": "x"}]}, "messages.0.role"),
    ],
)
def test_what_is_wrong_is_refused(path: str, body: Any, said: str, engine: RunningEngine) -> None:
    response = engine.http.post(path, json=body)
    assert response.status_code == 400
    assert said in response.json()["error"]["message"]


def test_seed_repeats_a_draw(engine: RunningEngine) -> None:
    body = {**COMPLETION, "temperature": 1.0}
    first, again = (post(engine, "/v1/completions", {**body, "seed": 5})["choices"] for _ in range(2))
    other = post(engine, "/v1/completions", {**body, "seed": 6})["choices"]
    assert first == again
    assert first != other


def test_state_endpoints(engine: RunningEngine) -> None:
    assert engine.http.get("/health").status_code == 200
    assert engine.http.get("/health_generate").status_code == 200
    (model,) = engine.http.get("/v1/models").json()["data"]
    assert (model["id"], model["root"], model["max_model_len"]) == ("served", "builtin:random-gqa", 8192)
    for path in ("/server_info", "/get_server_info"):
        for method in ("GET", "POST"):
            assert engine.http.request(method, path).json()["nonce"] == "n1"
    missing = engine.http.get("/nothing")
    assert missing.status_code == 404
    assert missing.json()["error"]["message"] == "Not Found"


def test_metrics_count_answers_and_tell_every_rank(engine: RunningEngine) -> None:
    def read() -> dict[str, float]:
        lines = engine.http.get("/metrics").text.splitlines()
        return {k: float(v) for k, v in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}

    before = read()
    engine.generate([256] * 3, max_new_tokens=5)
    chunks(engine, "/v1/completions", COMPLETION)
    engine.http.post("/generate", json={"text": ""})
    after = read()
    grown = {name: after[name] - before[name] for name in before if after[name] != before[name]}
    assert grown["sglang:num_requests_total"] == 2
    assert grown["sglang:prompt_tokens_total"] == 13
    assert grown["sglang:generation_tokens_total"] == 25
    assert grown["sglang:num_refused_requests_total"] == 1
    assert after["sglang:num_running_reqs"] == 0
    for rank in range(2):
        assert after[f'harness:kv_rows_free{{tp_rank="{rank}"}}'] > 0
        assert grown[f'harness:collectives_total{{tp_rank="{rank}",group="dcp",kind="all_gather"}}'] > 0


def test_metrics_count_a_client_that_leaves_as_an_abort(engine: RunningEngine) -> None:
    def aborted() -> int:
        (line,) = re.findall(
            r"(?m)^sglang:num_aborted_requests_total (\d+)$", engine.http.get("/metrics").text
        )
        return int(line)

    before = aborted()
    with engine.http.stream(
        "POST", "/v1/completions", json={**COMPLETION, "max_tokens": 4000, "stream": True}
    ) as response:
        next(response.iter_lines())
    while engine.info()["running"]:
        pass
    assert aborted() == before + 1


def test_text_offsets_point_into_the_text(engine: RunningEngine) -> None:
    """A token that is no character by itself is written `bytes:\\xc3`, longer than what it adds to the text."""
    body = {**COMPLETION, "max_tokens": 60, "logprobs": 0, "temperature": 3.0, "seed": 1, "ignore_eos": True}
    (choice,) = post(engine, "/v1/completions", body)["choices"]
    pieces = chunks(engine, "/v1/completions", body)
    told = choice["logprobs"]
    assert any(token.startswith("bytes:") for token in told["tokens"])
    for token, place in zip(told["tokens"], told["text_offset"], strict=True):
        if not token.startswith("bytes:"):
            assert choice["text"].startswith(token, place)
    streamed = [
        place for piece in pieces for one in piece["choices"] for place in one["logprobs"]["text_offset"]
    ]
    assert streamed == told["text_offset"]


def test_row_dumps_can_be_off(tmp_path: Path) -> None:
    with running(EngineConfig(kv_rows=False), directory=tmp_path) as engine:
        response = engine.http.get("/kv_rows")
        assert response.status_code == 404
        assert "--kv-rows" in response.json()["error"]["message"]
