"""Whole engines: sharded they answer as unsharded, rows are in their places, collectives all counted."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engine_process import RunningEngine, generate_body, running
from row_oracle import expected_rows

from harness.refengine.config import CommBackend, DcpCommBackend, EngineConfig, StartMethod

NUM_PROMPTS = 50
SHARDED = EngineConfig(tp=8, dcp=8, page_size=4, chunked_prefill_size=48)
LOGPROB_BOUND = 1e-4


def prompts() -> list[list[int]]:
    """Lengths around shards (8), widened pages (32) and chunks (48), then random ones."""
    rng = random.Random(7)
    lengths = [
        1,
        7,
        8,
        9,
        31,
        32,
        33,
        47,
        48,
        49,
        97,
        *(rng.randrange(1, 120) for _ in range(NUM_PROMPTS - 11)),
    ]
    return [[256, *(rng.randrange(256) for _ in range(length - 1))] for length in lengths]


def tokens_and_logprobs(answers: list[Any]) -> list[tuple[list[int], list[float]]]:
    found = []
    for answer in answers:
        entries = answer["meta_info"]["output_token_logprobs"]
        found.append(([token for _, token, _ in entries], [logprob for logprob, _, _ in entries]))
    return found


def assert_same(found: list[Any], expected: list[Any]) -> None:
    pairs = zip(tokens_and_logprobs(found), tokens_and_logprobs(expected), strict=True)
    for number, ((tokens, logprobs), (known, reference)) in enumerate(pairs):
        assert tokens == known, f"prompt {number}"
        assert logprobs == pytest.approx(reference, abs=LOGPROB_BOUND), f"prompt {number}"


@pytest.fixture(scope="module")
def unsharded(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The answers of one rank, one prompt after the other."""
    with running(EngineConfig(), directory=tmp_path_factory.mktemp("one")) as engine:
        return [engine.generate(prompt, max_new_tokens=6) for prompt in prompts()]


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    with running(SHARDED, directory=tmp_path_factory.mktemp("eight")) as engine:
        yield engine


def test_eight_ranks_answer_as_one(sharded: RunningEngine, unsharded: list[Any]) -> None:
    """All at once, so that chunks, batches and pages mix."""
    assert_same(sharded.generate(prompts(), max_new_tokens=6), unsharded)


@pytest.mark.parametrize(
    "config",
    [
        replace(SHARDED, dcp=2, tp=4, comm=CommBackend.GLOO, interleave=4),
        replace(SHARDED, dcp=2, tp=2, start_method=StartMethod.SPAWN, dcp_comm_backend=DcpCommBackend.A2A),
    ],
    ids=["gloo-interleave4", "spawn-a2a"],
)
def test_other_ways_to_start_and_to_talk_answer_alike(
    config: EngineConfig, unsharded: list[Any], tmp_path: Path
) -> None:
    with running(config, directory=tmp_path) as engine:
        assert_same(engine.generate(prompts()[:12], max_new_tokens=6), unsharded[:12])


def stream_prefixes(engine: RunningEngine, number: int, *, length: int) -> None:
    """Read a stream to its end."""
    body = generate_body([256] * length, stream=True, max_new_tokens=60, rid=f"s{number}")
    with engine.http.stream("POST", "/generate", json=body) as response:
        for _ in response.iter_lines():
            pass


@pytest.mark.parametrize("interleave", [1, 2])
def test_every_row_of_every_rank_holds_its_token_while_requests_run(
    interleave: int, sharded: RunningEngine, tmp_path: Path
) -> None:
    if interleave == 1:
        check_rows_in_flight(sharded)
        return
    with running(replace(SHARDED, tp=4, dcp=4, interleave=interleave), directory=tmp_path) as engine:
        check_rows_in_flight(engine)


def check_rows_in_flight(engine: RunningEngine) -> None:
    usable = [rank["kv_rows"] for rank in engine.info()["ranks"]]
    seen = 0
    with ThreadPoolExecutor() as pool:
        streams = [pool.submit(stream_prefixes, engine, n, length=5 + 17 * n) for n in range(6)]
        while not all(stream.done() for stream in streams):
            dump = engine.rows()
            seen = max(seen, len(dump["requests"]))
            for request in dump["requests"]:
                assert len(request["tokens"]) == request["kv_len"]
            for rank, rows in zip(dump["ranks"], usable, strict=True):
                found = {row: held for row, *held in rank["rows"]}
                assert found == expected_rows(dump, rank=rank["attn_dcp_rank"])
                assert rank["free_rows"] == rows - len(found)
                assert rank["free_rows_poisoned"]
        for stream in streams:
            stream.result()
    assert seen >= 2, "never were two requests seen in flight"
    after = engine.rows()
    assert after["requests"] == []
    assert all(rank["rows"] == [] and rank["free_rows_poisoned"] for rank in after["ranks"])


@pytest.mark.parametrize("comm", [CommBackend.SHM, CommBackend.GLOO])
def test_collectives_told_are_those_an_outside_wrapper_counts(
    comm: CommBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNTS_DIR", str(tmp_path))
    config = EngineConfig(tp=4, dcp=2, comm=comm)
    zygote = [sys.executable, "-m", "counting_zygote"]
    with running(config, directory=tmp_path, zygote=zygote) as engine:
        assert engine.generate("count this", max_new_tokens=5)["meta_info"]["completion_tokens"] == 5
        info = engine.info()
        assert info["faults"] == ["counted"]
        for rank in info["ranks"]:
            # The ranks are idle: whoever answered has not called anything since.
            counted = json.loads((tmp_path / f"{rank['tp_rank']}.json").read_text())
            told = {
                group: {k: n for k, n in kinds.items() if n} for group, kinds in rank["collectives"].items()
            }
            assert told == counted
            assert told["dcp"]["all_gather"] > 0
            assert told["tp"]["broadcast"] == rank["step"] == info["step"]


def test_server_info_tells_the_live_topology_of_every_rank(sharded: RunningEngine) -> None:
    info = sharded.info()
    assert (info["tp_size"], info["dcp_size"], info["page_size"]) == (8, 8, 4)
    assert (info["launcher_pid"], info["front_pid"]) == (sharded.pids["launcher"], sharded.pids["front"])
    assert [rank["pid"] for rank in info["ranks"]] == sharded.pids["ranks"]
    for number, rank in enumerate(info["ranks"]):
        topology = rank["topology"]
        assert rank["tp_rank"] == topology["tp_rank"] == topology["attn_dcp_rank"] == number
        assert topology["attn_dcp_size"] == 8
        assert topology["dcp_enabled"]
        assert topology["dcp_group"] == list(range(8))
        assert rank["widened_page_size"] == 32
    assert info["max_total_num_tokens"] == sum(rank["kv_rows"] for rank in info["ranks"])


def test_a_draw_depends_on_its_seed_and_not_on_its_company(sharded: RunningEngine) -> None:
    def draws(seeds: list[int]) -> list[list[int]]:
        params = [
            {"temperature": 1.0, "sampling_seed": seed, "ignore_eos": True, "max_new_tokens": 12}
            for seed in seeds
        ]
        body = {"input_ids": [[256, 65, 66]] * len(seeds), "sampling_params": params}
        answers = sharded.http.post("/generate", json=body).json()
        return [answer["output_ids"] for answer in answers]

    alone = [draws([seed])[0] for seed in range(4)]
    assert draws([3, 1, 0, 2, 1]) == [alone[3], alone[1], alone[0], alone[2], alone[1]]
    assert len({tuple(answer) for answer in alone}) == 4


def test_all_that_fit_are_answered_in_full_when_many_queue(tmp_path: Path) -> None:
    """A pool of 32 tokens in pages of 4: two or three requests at a time."""
    with running(EngineConfig(tp=2, dcp=2, page_size=2, max_total_tokens=32), directory=tmp_path) as engine:
        assert engine.info()["max_total_num_tokens"] == 32
        rng = random.Random(3)
        lengths = [(rng.randrange(1, 10), rng.randrange(1, 12)) for _ in range(40)]
        params = [{"max_new_tokens": new, "temperature": 0.0, "ignore_eos": True} for _, new in lengths]
        body = {"input_ids": [[256] * prompt for prompt, _ in lengths], "sampling_params": params}
        answers = engine.http.post("/generate", json=body).json()
        assert [len(answer["output_ids"]) for answer in answers] == [new for _, new in lengths]
        refused = engine.http.post("/generate", json=generate_body([256] * 9, max_new_tokens=16))
        assert refused.status_code == 400
        for number in ("input_len 9", "max_new_tokens 16", "max_total_num_tokens 32"):
            assert number in refused.json()["error"]["message"]
