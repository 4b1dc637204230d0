"""Two real engines that share every request answer as one: every topology, every length, every way to ask."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engine_pair import Pair, pair, wait_drained
from engine_process import RunningEngine, generate_body, running
from row_oracle import expected_rows
from transfer_world import TRANSPORTS

from harness.refengine.config import CommBackend, EngineConfig, StartMethod, TransferBackend

MODELS = {1: "builtin:random-gqa-kv1", 2: "builtin:random-gqa", 8: "builtin:random-gqa-kv8"}
CHUNK = 48
LOGPROB_BOUND = 1e-5
# Around nothing at all, shards (4), pages (4), widened pages (16) and chunks (48), in no order.
LENGTHS = [97, 1, 49, 2, 16, 3, 48, 5, 4, 31, 130, 15, 17, 47, 33, 32, 96]
Ask = Callable[[dict[str, Any]], Any]


def config(tp: int = 1, dcp: int = 1, *, kv: int = 2, **more: Any) -> EngineConfig:
    return EngineConfig(model=MODELS[kv], tp=tp, dcp=dcp, page_size=4, chunked_prefill_size=CHUNK, **more)


def prompts(lengths: list[int] = LENGTHS, *, seed: int = 11) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(256) for _ in range(length)] for length in lengths]


def everything(given: list[list[int]], **params: Any) -> dict[str, Any]:
    """A body that asks for all an answer can tell."""
    body = generate_body(given, **{"max_new_tokens": 7, **params})
    return {**body, "logprob_start_len": 0, "top_logprobs_num": 3}


def ask_of(engine: RunningEngine) -> Ask:
    def ask(body: dict[str, Any]) -> Any:
        response = engine.http.post("/generate", json=body)
        assert response.status_code == 200, response.text
        return response.json()

    return ask


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], RunningEngine]]:
    """An engine of one rank that does all by itself, for a model of so many KV heads."""
    with ExitStack() as stack:
        engines: dict[int, RunningEngine] = {}

        def engine(kv: int) -> RunningEngine:
            if kv not in engines:
                directory = tmp_path_factory.mktemp(f"alone{kv}")
                engines[kv] = stack.enter_context(running(config(kv=kv), directory=directory))
            return engines[kv]

        yield engine


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with pair(config(2), config(4, 4), directory=tmp_path_factory.mktemp("two")) as two:
        yield two


def assert_alike(found: Any, expected: Any) -> None:
    """The same tokens and texts, and log-probabilities within LOGPROB_BOUND, wherever they stand in an answer."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected.keys() - {"id", "created"}:
            assert_alike(found[key], expected[key])
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_alike(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, abs=LOGPROB_BOUND)
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("prefill", "decode", "kv"),
    [
        (config(2), config(4, 4), 2),
        (config(1), config(2, 2), 1),
        (config(4, 4), config(4, 4), 2),
        (config(4), config(8, 4), 1),
        (config(2), config(4, 2), 8),
        (config(4, 2, start_method=StartMethod.SPAWN), config(2, 2, start_method=StartMethod.SPAWN), 8),
        (config(1), config(4, 4, interleave=2, comm=CommBackend.GLOO), 8),
        (config(2), config(1), 2),
    ],
    ids=lambda value: f"tp{value.tp}dcp{value.dcp}" if isinstance(value, EngineConfig) else f"kv{value}",
)
def test_a_pair_answers_as_one_engine(
    prefill: EngineConfig,
    decode: EngineConfig,
    kv: int,
    alone: Callable[[int], RunningEngine],
    tmp_path: Path,
) -> None:
    """All prompts at once, so that chunks, batches and handovers mix; the log-probabilities of prompts too."""
    expected = ask_of(alone(kv))(everything(prompts()))
    with pair(
        replace(prefill, model=MODELS[kv]), replace(decode, model=MODELS[kv]), directory=tmp_path
    ) as two:
        assert_alike(two.ask(everything(prompts())), expected)
        assert_bytes_add_up(two)
        for side in two.sides:
            wait_drained(side)


def assert_bytes_add_up(two: Pair) -> None:
    """What prefill ranks have sent is what decode ranks have received, and that is what decode ranks own."""
    info = two.decode.info()
    owned = [0] * info["dcp_size"]
    for length in LENGTHS:
        for position in range(length):
            owned[position // info["interleave"] % info["dcp_size"]] += 1
    for rank in info["ranks"]:
        expected = owned[rank["topology"]["attn_dcp_rank"]] * rank["kv_row_bytes"]
        assert rank["transfer"]["bytes_received"] == expected
    sent = sum(rank["transfer"]["bytes_sent"] for rank in two.prefill.info()["ranks"])
    assert sent == sum(rank["transfer"]["bytes_received"] for rank in info["ranks"])


@pytest.mark.parametrize("backend", TRANSPORTS)
def test_every_transport_carries_all(
    backend: TransferBackend, alone: Callable[[int], RunningEngine], tmp_path: Path
) -> None:
    with pair(config(2), config(4, 4), directory=tmp_path, backend=backend) as two:
        expected = ask_of(alone(2))(everything(prompts()))
        assert_alike(two.ask(everything(prompts())), expected)


def test_bf16_travels_as_it_is(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    body = everything(prompts())
    with running(config(2, dtype="bf16"), directory=tmp_path_factory.mktemp("whole")) as whole:
        expected = ask_of(whole)(body)
    with pair(config(2, dtype="bf16"), config(2, dtype="bf16"), directory=tmp_path) as two:
        assert_alike(two.ask(body), expected)


def test_every_row_of_every_decode_rank_holds_its_token_while_requests_run(two: Pair) -> None:
    usable = [rank["kv_rows"] for rank in two.decode.info()["ranks"]]
    answers = [two.post(generate_body([n] * (1 + 17 * n), max_new_tokens=150))[1] for n in range(6)]
    decoding = 0
    while not all(answer.done() for answer in answers):
        dump = two.decode.rows()
        whole = [request for request in dump["requests"] if not request.get("receiving")]
        decoding = max(decoding, len(whole))
        dump["requests"] = whole
        indices = {request["index"] for request in whole}
        for rank, rows in zip(dump["ranks"], usable, strict=True):
            found = {row: held for row, *held in rank["rows"] if held[0] in indices}
            assert found == expected_rows(dump, rank=rank["attn_dcp_rank"])
            assert rank["free_rows"] == rows - len(rank["rows"])
            assert rank["free_rows_poisoned"]
    assert decoding >= 2, "never were two requests seen decoding"


def events(two: Pair, path: str, body: dict[str, Any]) -> list[Any]:
    """The decode engine's stream, as events; it must end with [DONE]."""
    for answer in (answers := two.post({**body, "stream": True}, path=path)):
        assert answer.result().status_code == 200, answer.result().text
    *lines, done = [line for line in answers[1].result().text.split("\n\n") if line]
    assert done == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_a_stream_grows_to_the_plain_answer(two: Pair, alone: Callable[[int], RunningEngine]) -> None:
    (prompt,) = prompts([50])
    body = {**generate_body(prompt, max_new_tokens=7), "logprob_start_len": 0}
    grown = events(two, "/generate", body)
    assert [len(event["output_ids"]) for event in grown] == list(range(1, 8))
    assert_alike(grown[-1], ask_of(alone(2))(body))


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_openai_answers_are_alike_too(path: str, two: Pair, alone: Callable[[int], RunningEngine]) -> None:
    chat = path.endswith("chat/completions")
    source = {"messages": [{"role": "user", "content": "hello"}]} if chat else {"prompt": ["a b", "ccc"]}
    body = {**source, "model": "m", "max_tokens": 6, "temperature": 0.0, "logprobs": True if chat else 2}
    expected = alone(2).http.post(path, json=body).json()
    assert_alike(two.ask(body, path=path), expected)


def test_draws_go_on_where_the_other_engine_left_off(
    two: Pair, alone: Callable[[int], RunningEngine]
) -> None:
    body = generate_body(prompts([9, 60]), temperature=1.0, sampling_seed=5, max_new_tokens=20)
    expected = ask_of(alone(2))(body)
    assert expected[0]["output_ids"] != ask_of(alone(2))(generate_body(prompts([9, 60])))[0]["output_ids"]
    assert_alike(two.ask(body), expected)


@pytest.mark.parametrize("count", [1, 2])
def test_a_stop_string_ends_the_answer_wherever_it_ends(
    count: int, two: Pair, alone: Callable[[int], RunningEngine]
) -> None:
    """In the first token too, which the prefill engine draws and the decode engine answers."""
    prompt = next(
        one for one in prompts([6] * 50) if all(32 < t < 127 for t in alone_ids(alone(2), one)[:count])
    )
    stop = bytes(alone_ids(alone(2), prompt)[:count]).decode()
    body = generate_body(prompt, stop=stop, max_new_tokens=9)
    expected = ask_of(alone(2))(body)
    assert expected["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
    assert_alike(two.ask(body), expected)
    for side in two.sides:
        wait_drained(side)


def alone_ids(engine: RunningEngine, prompt: list[int]) -> list[int]:
    ids: list[int] = engine.generate(prompt, max_new_tokens=2)["output_ids"]
    return ids


def test_an_answer_of_one_token_is_the_one_that_was_handed_over(
    two: Pair, alone: Callable[[int], RunningEngine]
) -> None:
    body = everything(prompts([5, 50]), max_new_tokens=1)
    assert_alike(two.ask(body), ask_of(alone(2))(body))
    for side in two.sides:
        wait_drained(side)


def test_the_prefill_engine_answers_with_the_first_token_alone(two: Pair) -> None:
    first, whole = two.post(generate_body([1, 2, 3], max_new_tokens=5))
    assert first.result().json()["output_ids"] == whole.result().json()["output_ids"][:1]
    assert first.result().json()["meta_info"]["finish_reason"] == {"type": "length", "length": 1}


def test_both_sides_are_healthy_and_tell_what_they_are(two: Pair) -> None:
    for side, mode, moved in zip(two.sides, ("prefill", "decode"), ("sent", "received"), strict=True):
        assert side.http.get("/health_generate").status_code == 200
        info = side.info()
        assert (info["disaggregation_mode"], info["disaggregation_transfer_backend"]) == (mode, "tcp")
        assert info["attention_backend"] == "torch"
        page = side.http.get("/metrics").text
        for rank in info["ranks"]:
            total = rank["transfer"][f"bytes_{moved}"]
            assert f'harness:transfer_bytes_{moved}_total{{tp_rank="{rank["tp_rank"]}"}} {total}\n' in page


def test_many_requests_share_small_pools_in_whatever_order_they_come(
    alone: Callable[[int], RunningEngine], tmp_path: Path
) -> None:
    """Two or three prompts at a time fit on either side, and each side hears of them in another order."""
    rng = random.Random(5)
    given = prompts([rng.randrange(1, 60) for _ in range(40)], seed=6)
    expected = ask_of(alone(2))(generate_body(given, max_new_tokens=12))
    prefill, decode = config(2, max_total_tokens=144), config(4, 4, max_total_tokens=192)
    with pair(prefill, decode, directory=tmp_path) as two:
        bodies = [two.body(generate_body(prompt, max_new_tokens=12)) for prompt in given]
        futures: dict[int, list[Any]] = {}
        for side in two.sides:
            order = rng.sample(range(len(bodies)), len(bodies))
            sent = {i: two.clients.submit(side.http.post, "/generate", json=bodies[i]) for i in order}
            futures[id(side)] = [sent[i] for i in range(len(bodies))]
        for number, response in enumerate(one.result() for one in futures[id(two.decode)]):
            assert response.status_code == 200, response.text
            assert_alike(response.json(), expected[number])
        assert all(one.result().status_code == 200 for one in futures[id(two.prefill)])
        for side in two.sides:
            wait_drained(side)
