"""The fronts of two engines that share requests, over ranks that the test plays: who is told what, and when."""

from __future__ import annotations

import asyncio
import json
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from hypothesis import given, settings
from hypothesis import strategies as st
from played_ranks import TWO, Ranks, play, played, until

from harness.refengine.config import DisaggregationMode, EngineConfig
from harness.refengine.front.app import make_app
from harness.refengine.front.handovers import Handovers
from harness.refengine.requests import Begin, Bound, GenerateRequest, Handover, Release, Said

PREFILL = replace(TWO, dcp=1, disaggregation_mode=DisaggregationMode.PREFILL, nonce="p")
DECODE = replace(TWO, disaggregation_mode=DisaggregationMode.DECODE, nonce="d")
FIRST = {"token": 65, "logprob": -0.5, "top": []}
ROOM = 2**62 + 1


def client(ranks: Ranks) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(make_app(ranks.wiring, ranks.link))
    return httpx.AsyncClient(transport=transport, base_url="http://x")


@asynccontextmanager
async def serving(app: FastAPI) -> AsyncIterator[int]:
    """The app on a port of its own; its number."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
    running = asyncio.create_task(server.serve(sockets=[listener]))
    await until(lambda: server.started)
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await running


@asynccontextmanager
async def both(
    prefill: EngineConfig = PREFILL, decode: EngineConfig = DECODE
) -> AsyncIterator[tuple[Ranks, Ranks, dict[str, Any]]]:
    """Ranks of both engines, and the body of a request that names the prefill one."""
    async with played(prefill) as source, played(decode) as target:
        async with serving(make_app(source.wiring, source.link)) as port:
            place = {"bootstrap_host": "127.0.0.1", "bootstrap_port": port}
            yield source, target, body(bootstrap_room=ROOM, **place)


def body(**fields: Any) -> dict[str, Any]:
    return {"input_ids": [1, 2], "rid": "a", "sampling_params": {"max_new_tokens": 3}, **fields}


def say(ranks: Ranks, said: Said, key: str = f"a@{ROOM}", **more: Any) -> None:
    """All ranks say the same, the last one first."""
    for rank in reversed(range(len(ranks.ends))):
        ranks.say(rank, {"type": said, "rid": key, **more})


def progress(rid: str, *, token: int | None = 65, finish: str | None = None) -> dict[str, Any]:
    item = {"rid": rid, "token": token, "logprob": -1.0, "top": [], "finish": finish}
    return {"type": Said.PROGRESS, "items": [item]}


def test_a_decode_front_asks_the_other_where_its_ranks_listen() -> None:
    async def script() -> None:
        async with both() as (_, target, sent), client(target) as http:
            answering = asyncio.create_task(http.post("/generate", json=sent))
            (request,) = await target.hear(1)
            assert request["handover"]["room"] == ROOM
            peer = request["handover"]["peer"]
            assert (peer["host"], peer["ports"], peer["nonce"]) == ("127.0.0.1", [2000, 2001], "p")
            assert (peer["shape"]["tp_size"], peer["shape"]["dcp_size"]) == (2, 1)
            target.say(1, {"type": Said.ARRIVED, "rid": f"a@{ROOM}", "first": None})
            target.say(0, {"type": Said.ARRIVED, "rid": f"a@{ROOM}", "first": FIRST})
            assert await target.hear(1) == [{"type": "begin", "rid": "a", "first": FIRST}]
            target.finish("a")
            answer = (await answering).json()
            assert answer["output_ids"] == [65]

    play(script())


def test_a_prefill_front_waits_for_every_rank_and_leaves_stop_strings_alone() -> None:
    async def script() -> None:
        async with both() as (source, _, sent), client(source) as http:
            sent["sampling_params"]["stop"] = "A"
            answering = asyncio.create_task(http.post("/generate", json=sent))
            (request,) = await source.hear(1)
            assert request["handover"] == {"room": ROOM, "peer": None}
            say(source, Said.BOUND)
            assert await source.hear(1) == [{"type": "bound", "rid": "a"}]
            source.say(0, progress("a"))
            say(source, Said.SENT)
            assert await source.hear(1) == [{"type": "release", "rid": "a"}]
            source.say(0, progress("a", token=None, finish="length"))
            answer = (await answering).json()
            assert answer["output_ids"] == [65]
            assert answer["meta_info"]["finish_reason"] == {"type": "length", "length": 1}

    play(script())


def test_what_fails_on_one_rank_ends_on_all_and_is_a_502_with_the_reason() -> None:
    async def script() -> None:
        async with both() as (source, _, sent), client(source) as http:
            answering = asyncio.create_task(http.post("/generate", json=sent))
            await source.hear(1)
            source.say(1, {"type": Said.FAILED, "rid": f"a@{ROOM}", "why": "decode rank 3 has ended"})
            response = await answering
            assert response.status_code == 502
            error = response.json()["error"]
            assert (error["type"], error["code"]) == ("HandoverError", 502)
            assert "'a' failed on rank 1: decode rank 3 has ended" in error["message"]
            (abort, *_) = await source.hear(1)
            assert (abort["type"], abort["rid"]) == ("abort", "a")
            assert "decode rank 3 has ended" in abort["why"]

    play(script())


def test_what_is_aborted_here_is_no_failure_of_the_other_engine() -> None:
    """A rank that acts on the abort early makes the other engine fail it, which a late rank hears of first."""

    async def script() -> None:
        async with both() as (source, _, sent), client(source) as http:
            answering = asyncio.create_task(http.post("/generate", json=sent))
            await source.hear(1)
            await http.post("/abort_request", json={"rid": "a"})
            await source.hear(1)
            source.say(0, {"type": Said.FAILED, "rid": f"a@{ROOM}", "why": "it was given up"})
            source.say(0, progress("a", token=None, finish="abort"))
            answer = (await answering).json()
            assert answer["meta_info"]["finish_reason"]["type"] == "abort"

    play(script())


@pytest.mark.parametrize("path", ["/generate", "/v1/completions"])
def test_a_stream_that_fails_after_it_began_ends_with_the_error(path: str) -> None:
    async def script() -> None:
        async with both() as (_, target, sent), client(target) as http:
            if path != "/generate":
                place = {key: value for key, value in sent.items() if key.startswith("bootstrap")}
                sent = {"prompt": [1, 2], "rid": "a", **place}
            answering = asyncio.create_task(http.post(path, json={**sent, "stream": True}))
            await target.hear(1)
            target.say(0, progress("a"))
            target.say(0, {"type": Said.FAILED, "rid": f"a@{ROOM}", "why": "nothing came"})
            response = await answering
            assert response.status_code == 200
            first, last = [json.loads(line[6:]) for line in response.text.split("\n\n") if line]
            assert "error" not in first
            assert last["error"]["code"] == 502
            assert "nothing came" in last["error"]["message"]

    play(script())


def test_what_ranks_still_say_of_an_earlier_use_of_a_rid_is_not_counted() -> None:
    async def script() -> None:
        async with both() as (source, _, sent), client(source) as http:
            for room in (1, 2):
                answering = asyncio.create_task(http.post("/generate", json={**sent, "bootstrap_room": room}))
                await source.hear(1)
                if room == 2:
                    say(source, Said.SENT, key="a@1")
                    say(source, Said.BOUND, key="a@2")
                    assert await source.hear(1) == [{"type": "bound", "rid": "a"}]
                source.finish("a")
                await answering

    play(script())


def test_a_room_is_taken_until_its_request_has_ended() -> None:
    async def script() -> None:
        async with both() as (source, _, sent), client(source) as http:
            answering = asyncio.create_task(http.post("/generate", json=sent))
            await source.hear(1)
            refused = await http.post("/generate", json={**sent, "rid": "b"})
            assert refused.status_code == 400
            assert f"bootstrap_room {ROOM} is in flight" in refused.json()["error"]["message"]
            source.finish("a")
            await answering
            again = asyncio.create_task(http.post("/generate", json={**sent, "rid": "c"}))
            await source.hear(1)
            source.finish("c")
            assert (await again).status_code == 200

    play(script())


@pytest.mark.parametrize(
    ("config", "fields", "told"),
    [
        (TWO, {"bootstrap_room": 1}, "bootstrap_room: this engine answers alone"),
        (PREFILL, {}, "bootstrap_room: missing"),
        (DECODE, {"bootstrap_room": 1, "bootstrap_port": 1}, "bootstrap_host: missing"),
        (DECODE, {}, "bootstrap_room, bootstrap_host, bootstrap_port: missing"),
        (PREFILL, {"bootstrap_room": [1, 2]}, "bootstrap_room lists 2 values for 1 prompts"),
        (PREFILL, {"bootstrap_room": -1}, "bootstrap_room: "),
        (PREFILL, {"bootstrap_room": 2**63}, "bootstrap_room: "),
        (
            DECODE,
            {"bootstrap_room": 1, "bootstrap_host": "256.1.1.1", "bootstrap_port": 1},
            "'256.1.1.1', which is no host",
        ),
    ],
)
def test_bad_fields_are_named(config: EngineConfig, fields: dict[str, Any], told: str) -> None:
    async def script() -> None:
        async with played(config) as ranks, client(ranks) as http:
            response = await http.post("/generate", json=body(**fields))
            assert response.status_code == 400
            assert told in response.json()["error"]["message"]
            assert ranks.link.rids() == []

    play(script())


@pytest.mark.parametrize(
    ("room", "rooms"),
    [(7, [7, 8]), ([9, 4], [9, 4]), (2**63 - 1, [2**63 - 1, 0])],
    ids=["counted-on", "listed", "wrapped"],
)
@pytest.mark.parametrize("path", ["/generate", "/v1/completions"])
def test_each_prompt_has_its_room(path: str, room: Any, rooms: list[int]) -> None:
    async def script() -> None:
        async with played(PREFILL) as ranks, client(ranks) as http:
            prompts = {"input_ids" if path == "/generate" else "prompt": [[1], [2]]}
            posting = asyncio.create_task(http.post(path, json={**prompts, "bootstrap_room": room}))
            heard = await ranks.hear(2)
            assert [request["handover"]["room"] for request in heard] == rooms
            for request in heard:
                ranks.finish(request["rid"])
            assert (await posting).status_code == 200

    play(script())


@pytest.mark.parametrize(
    ("prefill", "status", "told"),
    [
        (
            replace(PREFILL, page_size=8),
            400,
            "--page-size is 8 on the prefill side and 16 on the decode side",
        ),
        (replace(PREFILL, seed=3), 400, "of seed 3"),
        (DECODE, 502, "answered what no prefill engine"),
        (TWO, 502, "answered 404"),
    ],
)
def test_an_engine_that_cannot_hand_over_is_refused(prefill: EngineConfig, status: int, told: str) -> None:
    async def script() -> None:
        async with both(prefill) as (_, target, sent), client(target) as http:
            response = await http.post("/generate", json=sent)
            assert response.status_code == status
            message = response.json()["error"]["message"]
            assert told in message
            assert f"the prefill engine at http://127.0.0.1:{sent['bootstrap_port']}" in message

    play(script())


@pytest.mark.parametrize("odd", [b"", b"<html>", b"[]", b"[" * 100_000, b'{"shape": {}}', b"\xff"])
def test_a_server_that_answers_oddly_is_named(odd: bytes) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(odd) + odd)
        await writer.drain()
        writer.close()

    async def script() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            async with played(DECODE) as ranks, client(ranks) as http:
                place = {"bootstrap_host": "127.0.0.1", "bootstrap_port": port, "bootstrap_room": 1}
                response = await http.post("/generate", json=body(**place))
                assert response.status_code == 502
                message = response.json()["error"]["message"]
                assert f"the prefill engine at http://127.0.0.1:{port} answered what no prefill" in message

    play(script())


def test_an_engine_that_is_not_there_is_named() -> None:
    async def script() -> None:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        async with played(DECODE) as ranks, client(ranks) as http:
            place = {"bootstrap_host": "127.0.0.1", "bootstrap_port": port, "bootstrap_room": 1}
            response = await http.post("/generate", json=body(**place))
            assert response.status_code == 502
            assert f"http://127.0.0.1:{port} cannot be reached" in response.json()["error"]["message"]

    play(script())


def test_an_engine_tells_what_others_need_to_know_of_it() -> None:
    async def script() -> None:
        for config, ports in ((PREFILL, [2000, 2001]), (DECODE, [])):
            async with played(config) as ranks, client(ranks) as http:
                told = (await http.get("/disaggregation")).json()
                assert (told["ports"], told["nonce"]) == (ports, config.nonce)
                assert told["shape"]["mode"] == config.disaggregation_mode
        async with played(TWO) as ranks, client(ranks) as http:
            assert (await http.get("/disaggregation")).status_code == 404

    play(script())


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), tp=st.integers(1, 6), requests=st.integers(1, 4))
def test_a_verdict_falls_once_with_the_last_rank_in_whatever_order(seed: int, tp: int, requests: int) -> None:
    rng = random.Random(seed)
    tally = Handovers(tp)
    known = [
        GenerateRequest(rid=f"r{i}", tokens=(1,), max_new_tokens=1, handover=Handover(room=i))
        for i in range(requests)
    ]
    tally.open(known)
    verdicts = {Said.BOUND: Bound, Said.SENT: Release, Said.ARRIVED: Begin}
    events = [(rank, said, request) for rank in range(tp) for said in verdicts for request in known]
    rng.shuffle(events)
    left = {(said, request.rid): tp for said in verdicts for request in known}
    gone = {request.rid for request in known if rng.random() < 0.2}
    for rid in gone:
        tally.close(rid)
    for rank, said, request in events:
        first = {"token": 1} if said is Said.ARRIVED and rank == 0 else None
        verdict = tally.hear(rank, {"type": said, "rid": request.handover_key, "first": first})
        left[said, request.rid] -= 1
        if left[said, request.rid] or request.rid in gone:
            assert verdict is None
        else:
            assert isinstance(verdict, verdicts[said])
            assert verdict.rid == request.rid
            assert not isinstance(verdict, Begin) or verdict.first == {"token": 1}
