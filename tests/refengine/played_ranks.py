"""Plays the ranks of an engine to its front: they say what a test wants them to say, when it wants."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from harness.refengine.config import DisaggregationMode, EngineConfig
from harness.refengine.frames import FrameDecoder, encode_frame
from harness.refengine.front.call import Call, Prompt
from harness.refengine.front.link import EngineLink
from harness.refengine.metrics import Counters
from harness.refengine.requests import GenerateRequest, Said
from harness.refengine.tokenizer import ByteTokenizer
from harness.refengine.wiring import Wiring

# Far above what any of these steps takes, so that a test which waits for ever fails instead.
PATIENCE_S = 30
TWO = EngineConfig(tp=2, dcp=2)


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
async def played(config: EngineConfig = TWO) -> AsyncIterator[Ranks]:
    """A link whose ranks have said that they are ready; rank r waits at port 2000 + r where others look for it."""
    tp = config.tp
    pairs = [socket.socketpair() for _ in range(tp)]
    told, status = os.pipe()
    wiring = Wiring(
        config=config,
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
        port = 2000 + rank if config.disaggregation_mode is DisaggregationMode.PREFILL else 0
        ranks.say(rank, {"type": Said.READY, "pid": 1000 + rank, "port": port})
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
