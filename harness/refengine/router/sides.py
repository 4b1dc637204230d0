"""The engines behind the router: what each last said of itself, and whether two of them are a pair.

An engine is asked anew (`GET /disaggregation`) at the start of every attempt, since one that was restarted at the
same address may be another. Nothing is held against an engine for good: one in trouble is asked again every second
and used again once it answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import httpx

from harness.errors import UsageError
from harness.refengine.router.policy import Cause, Failure, Pair, words_of
from harness.refengine.transfer.handshake import EngineShape, refuse_pair
from harness.topology import Side

DESCRIBE = "/disaggregation"
# The front answers it by itself, in milliseconds: this is far above what a machine under load takes.
DESCRIBE_S = 5.0
WATCH_EVERY_S = 1.0
# One connection a call, as the checks' client has it: a kept one may be closed by the engine just as a request is
# on its way, which looks like a death. Bodies are passed on as they are.
HEADERS = {"connection": "close", "accept-encoding": "identity", "content-type": "application/json"}


def make_http() -> httpx.AsyncClient:
    """The client of all calls to engines. No limits of its own: every caller has a deadline."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    return httpx.AsyncClient(headers=HEADERS, limits=limits, timeout=None, trust_env=False)


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why an engine cannot be used now; one that is UNFIT will not mend by itself."""

    cause: Cause
    words: str


NOT_ASKED = Trouble(Cause.SILENT, "not asked yet")


@dataclass(slots=True, kw_only=True, eq=False)
class Engine:
    """One engine. `shape` and `nonce` are from its last description; no `trouble` means that it may be used."""

    side: Side
    url: str
    shape: EngineShape | None = None
    nonce: str = ""
    trouble: Trouble | None = NOT_ASKED
    asking: asyncio.Task[None] | None = None

    def __str__(self) -> str:
        return f"{self.side.value} engine {self.url}"


def in_words(error: httpx.HTTPError) -> str:
    """Why a call got no answer."""
    told = str(error) or type(error).__name__
    what = "nothing answers there" if isinstance(error, httpx.ConnectError) else "the connection broke"
    return f"{what} ({told})"


class Sides:
    """All engines, by URL."""

    def __init__(self, *, prefill: Iterable[str], decode: Iterable[str], http: httpx.AsyncClient) -> None:
        self.prefill = {url: Engine(side=Side.PREFILL, url=url) for url in prefill}
        self.decode = {url: Engine(side=Side.DECODE, url=url) for url in decode}
        self._http = http

    @property
    def all(self) -> list[Engine]:
        return [*self.prefill.values(), *self.decode.values()]

    def engines(self, pair: Pair) -> tuple[Engine, Engine]:
        return self.prefill[pair.prefill], self.decode[pair.decode]

    def is_well(self, url: str) -> bool:
        """Whether an engine may be used, as far as is known: by itself, and in some pair."""
        return not self.trouble_of(self.prefill.get(url) or self.decode[url])

    def trouble_of(self, engine: Engine) -> str:
        """Why an engine is of no use now, "" if it is."""
        if engine.trouble is not None:
            return engine.trouble.words
        refused = self._refusals(engine)
        if None in refused.values():
            return ""
        return "; ".join(f"no pair with {other}: {words}" for other, words in refused.items())

    def picture(self, engine: Engine) -> dict[str, Any]:
        """One engine as told by the router's /server_info."""
        words = self.trouble_of(engine)
        known = {"nonce": engine.nonce} if engine.nonce else {}
        return {"url": engine.url, "healthy": not words, **known, **({"trouble": words} if words else {})}

    async def check(self, pair: Pair) -> Failure | None:
        """Ask both engines anew; why no request can be sent through them, or None."""
        engines = self.engines(pair)
        await self.describe(engines)
        for engine in engines:
            if (trouble := engine.trouble) is not None:
                status = 504 if trouble.cause is Cause.SILENT else 502
                return Failure(
                    cause=trouble.cause, pair=pair, side=engine.side, words=trouble.words, status=status
                )
        refused = self.refuse(*engines)
        return Failure(cause=Cause.UNFIT, pair=pair, side=None, words=refused) if refused else None

    @staticmethod
    def refuse(prefill: Engine, decode: Engine) -> str | None:
        """Why two engines that have described themselves are no pair."""
        assert prefill.shape is not None and decode.shape is not None, "asked before both were described"
        return refuse_pair(prefill.shape, decode.shape)

    def _refusals(self, engine: Engine) -> dict[Engine, str | None]:
        """Why `engine` is no pair with each engine of the other side, dead ones as they were: they may come back."""
        if engine.side is Side.PREFILL:
            return {other: self.refuse(engine, other) for other in self.decode.values()}
        return {other: self.refuse(other, engine) for other in self.prefill.values()}

    async def describe(self, engines: Iterable[Engine]) -> None:
        """Ask engines what they are; a question that is on its way serves all who ask meanwhile."""
        await asyncio.gather(*(self._describe(engine) for engine in engines))

    async def watch(self) -> None:
        """Ask those in trouble again, for as long as the router runs."""
        while True:
            await asyncio.sleep(WATCH_EVERY_S)
            await self.describe([engine for engine in self.all if self.trouble_of(engine)])

    async def _describe(self, engine: Engine) -> None:
        if engine.asking is None or engine.asking.done():
            engine.asking = asyncio.create_task(self._ask(engine))
        # One client that leaves must not end the question of the others.
        await asyncio.shield(engine.asking)

    async def _ask(self, engine: Engine) -> None:
        try:
            async with asyncio.timeout(DESCRIBE_S):
                answer = await self._http.get(f"{engine.url}{DESCRIBE}")
        except TimeoutError:
            engine.trouble = Trouble(Cause.SILENT, f"no answer to GET {DESCRIBE} within {DESCRIBE_S:g} s")
        except httpx.HTTPError as error:
            engine.trouble = Trouble(Cause.BROKEN, in_words(error))
        else:
            engine.trouble = _take(engine, answer)


def _take(engine: Engine, answer: httpx.Response) -> Trouble | None:
    if answer.status_code != httpx.codes.OK:
        words = f"GET {DESCRIBE} answered {answer.status_code}: {words_of(answer.content)}"
        passing = answer.status_code >= 500
        return Trouble(Cause.UNAVAILABLE if passing else Cause.UNFIT, words)
    try:
        told = answer.json()
        engine.shape, engine.nonce = EngineShape.from_dict(told["shape"]), str(told["nonce"])
    except (UsageError, ValueError, TypeError, KeyError) as error:
        return Trouble(Cause.UNFIT, f"GET {DESCRIBE} answered no description of an engine: {error!r}")
    return None
