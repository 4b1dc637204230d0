"""The front's end of the pipes, against ranks that the test plays: late, silent, or not reading."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from played_ranks import PATIENCE_S, call, play, played, until

from harness.errors import UsageError
from harness.refengine.front import app as front_app
from harness.refengine.front.call import Call
from harness.refengine.front.link import EngineSilentError
from harness.refengine.requests import QueryKind, Said


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
            assert (abort["type"], abort["rid"]) == ("abort", probe["rid"])

    play(script())
