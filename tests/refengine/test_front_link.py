"""The front's end of the pipes, against ranks that the test plays: late, silent, or not reading."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from harness.errors import UsageError
from harness.refengine.config import EngineConfig
from harness.refengine.frames import FrameDecoder, encode_frame
from harness.refengine.front import app as front_app
from harness.refengine.front.call import Call, Prompt
from harness.refengine.front.link import EngineLink, EngineSilentError
from harness.refengine.metrics import Counters
from harness.refengine.requests import GenerateRequest, QueryKind, Said
from harness.refengine.tokenizer import ByteTokenizer
from harness.refengine.wiring import Wiring

# Far above what any of these steps takes, so that a test which waits for ever fails instead.
PATIENCE_S = 30


@dataclass
class Ranks:
    """The ranks' ends of the pipes, and the front's link to them."""

    ends: list[socket.socket]
    link: EngineLink
    wiring: Wiring

    def say(self, rank: int, message: dict[str, Any]) -> None:
        self.ends[rank].sendall(encode_frame(message))

    async def hear(self, count: int) -> list[dict[str, Any]]:
        """The next `count` messages to rank 0."""
        loop = asyncio.get_running_loop()
        decoder, heard = FrameDecoder(), list[dict[str, Any]]()
        while len(heard) < count:
            heard += decoder.feed(await loop.sock_recv(self.ends[0], 1 << 20))
        return heard

    def finish(self, rid: str) -> None:
        item = {"rid": rid, "token": 65, "logprob": -1.0, "top": [], "finish": "length"}
        self.say(0, {"type": Said.PROGRESS, "items": [item]})


@asynccontextmanager
async def played(tp: int = 2) -> AsyncIterator[Ranks]:
    """A link whose `tp` ranks have said that they are ready."""
    pairs = [socket.socketpair() for _ in range(tp)]
    told, status = os.pipe()
    wiring = Wiring(
        config=EngineConfig(tp=tp, dcp=tp),
        parent=os.getpid(),
        launcher=os.getpid(),
        pipes=tuple(front.detach() for front, _ in pairs),
        status=status,
    )
    ranks = Ranks(ends=[end for _, end in pairs], link=EngineLink(wiring), wiring=wiring)
    for end in ranks.ends:
        end.setblocking(False)
    await ranks.link.connect()
    for rank in range(tp):
        ranks.say(rank, {"type": Said.READY, "pid": 1000 + rank})
    await until(lambda: ranks.link.ready)
    try:
        yield ranks
    finally:
        for end in ranks.ends:
            end.close()
        await until(lambda: not ranks.link.ready)
        os.close(told)
        os.close(status)


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until `condition` holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0)


def play(script: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(script, PATIENCE_S))


def call(ranks: Ranks, *rids: str, prompt_len: int = 1) -> Call:
    requests = [GenerateRequest(rid=rid, tokens=(65,) * prompt_len, max_new_tokens=1) for rid in rids]
    prompts = [Prompt(request=request) for request in requests]
    return Call(ranks.link, prompts, tokenizer=ByteTokenizer(), counters=Counters())


async def answered(one: Call) -> list[str]:
    """Run a call to its end; the rids of its answers."""
    await one.start()
    return [generation.request.rid async for generation in one.progress()]


def test_a_rid_of_a_list_is_taken_before_anything_is_sent() -> None:
    """While rank 0 reads nothing, the list cannot be sent; another call with a rid of it comes too late."""

    async def script() -> None:
        async with played() as ranks:
            rids = [f"r{i}" for i in range(40)]
            listed = asyncio.create_task(answered(call(ranks, *rids, prompt_len=20_000)))
            await until(lambda: ranks.link.rids())
            with pytest.raises(UsageError, match="rid 'r39' is in flight"):
                await call(ranks, "r39").start()
            heard = await ranks.hear(40)
            assert [message["rid"] for message in heard] == rids
            for rid in rids:
                ranks.finish(rid)
            assert sorted(await listed) == sorted(rids)

    play(script())


def test_a_call_given_up_while_it_is_sent_frees_its_rids() -> None:
    async def script() -> None:
        async with played() as ranks:
            one = call(ranks, "a", "b", prompt_len=100_000)
            starting = asyncio.create_task(one.start())
            await until(lambda: ranks.link.rids())
            starting.cancel()
            one.close()
            heard = await ranks.hear(4)
            assert [(message["type"], message["rid"]) for message in heard] == [
                ("generate", "a"),
                ("generate", "b"),
                ("abort", "a"),
                ("abort", "b"),
            ]
            for rid in ("a", "b"):
                ranks.finish(rid)
            await until(lambda: not ranks.link.rids())

    play(script())


def test_an_answer_that_does_not_come_is_an_error_in_time() -> None:
    """A stopped rank keeps its pipe open: only the missing answer tells."""

    async def script() -> None:
        async with played() as ranks:
            asked = asyncio.create_task(ranks.link.ask(QueryKind.PING, limit_s=0.2))
            (query,) = await ranks.hear(1)
            ranks.say(0, {"type": Said.ANSWER, "id": query["id"], "answer": {}})
            with pytest.raises(EngineSilentError, match=r"no answer from rank 1 within 0\.2 s"):
                await asked

    play(script())


@pytest.mark.parametrize("path", ["/health", "/health_generate"])
def test_health_of_an_engine_that_does_not_move_is_503(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_app, "HEALTH_S", 0.2)

    async def script() -> None:
        async with played() as ranks:
            transport = httpx.ASGITransport(front_app.make_app(ranks.wiring, ranks.link))
            async with httpx.AsyncClient(transport=transport, base_url="http://x") as http:
                response = await http.get(path)
            assert response.status_code == 503
            assert "within 0.2 s" in response.json()["error"]["message"]

    play(script())


def test_an_overloaded_engine_is_healthy_as_long_as_it_answers_somebody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The probe's own request waits behind others; their progress is proof enough."""
    monkeypatch.setattr(front_app, "HEALTH_S", PATIENCE_S)

    async def script() -> None:
        async with played() as ranks:
            transport = httpx.ASGITransport(front_app.make_app(ranks.wiring, ranks.link))
            async with httpx.AsyncClient(transport=transport, base_url="http://x") as http:
                probing = asyncio.create_task(http.get("/health_generate"))
                (probe,) = await ranks.hear(1)
                ranks.finish("somebody else's")
                assert (await probing).status_code == 200
            (abort,) = await ranks.hear(1)
            assert abort == {"type": "abort", "rid": probe["rid"]}

    play(script())
