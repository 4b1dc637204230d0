"""Questions about the engines and orders to all of them: everything that is no generation."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import httpx

from harness.refengine.router.attempt import ABORT
from harness.refengine.router.config import RouterConfig
from harness.refengine.router.flight import Flight
from harness.refengine.router.policy import words_of
from harness.refengine.router.proxy import Proxy
from harness.refengine.router.sides import Engine, Sides, in_words
from harness.topology import Side

# What needs a step boundary of all ranks may take as long as the engines themselves allow for their health.
STATE_S = 20.0
# A decode engine reads a request, and looks its prefill engine up, within milliseconds; it is told to abort again and
# again for so long.
INSIST_S = 1.0
INSIST_EVERY_S = 0.05

_METRICS = {
    "requests": "Requests that clients sent to the router.",
    "retries": "Attempts after the first of each request.",
    "failed": "Requests that ended with an error of the pair.",
}


class UnreachableError(Exception):
    """No engine that could answer does; the text names each. Never leaves the router."""


class State:
    """Asks the engines of `sides`."""

    def __init__(
        self, config: RouterConfig, *, url: str, sides: Sides, proxy: Proxy, http: httpx.AsyncClient
    ) -> None:
        self._config = config
        self._url = url
        self._sides = sides
        self._proxy = proxy
        self._http = http

    async def of_decode(self, path: str) -> httpx.Response:
        """The answer of a decode engine: the first that has one. Raises UnreachableError."""
        words: list[str] = []
        for engine in sorted(
            self._sides.decode.values(), key=lambda engine: not self._sides.is_well(engine.url)
        ):
            answer = await self._ask(engine, "GET", path)
            if isinstance(answer, httpx.Response):
                return answer
            words.append(answer)
        raise UnreachableError("; ".join(words))

    async def health(self) -> str:
        """Why no request can be served, "" where two engines that are well are a pair."""
        engines = self._sides.all
        answers, _ = await asyncio.gather(
            self._ask_all(engines, "GET", "/health"), self._sides.describe(engines)
        )
        words = {engine: _trouble(engine, answer) for engine, answer in zip(engines, answers, strict=True)}
        well = [engine for engine in engines if not words[engine]]
        refused = {
            f"{one} and {other} are no pair": self._sides.refuse(one, other)
            for one in well
            for other in well
            if (one.side, other.side) == (Side.PREFILL, Side.DECODE)
        }
        if None in refused.values():
            return ""
        ill = [told for told in words.values() if told]
        return "; ".join(ill + [f"{pair}: {why}" for pair, why in refused.items()])

    async def flush(self) -> tuple[int, str]:
        """Flush every engine: status and text of the first that did not, else of success."""
        answers = await self._ask_all(self._sides.all, "POST", "/flush_cache")
        for engine, answer in zip(self._sides.all, answers, strict=True):
            if not isinstance(answer, httpx.Response):
                return HTTPStatus.BAD_GATEWAY, answer
            if answer.is_error:
                return answer.status_code, f"{engine}: {answer.text.strip()}"
        return HTTPStatus.OK, "Cache flushed."

    async def abort(self, content: bytes, *, rid: str | None) -> tuple[int, str]:
        """Abort on every engine, `rid` or all. The decode side first: it would take the end of its prefill side
        for a failure. An engine that cannot be reached computes for nobody."""
        flights = self._proxy.flights.abort(rid)
        answers = await self._ask_all(self._sides.decode.values(), "POST", ABORT, content)
        await self._insist(flights, rid)
        answers += await self._ask_all(self._sides.prefill.values(), "POST", ABORT, content)
        told = [answer for answer in answers if isinstance(answer, httpx.Response)]
        if not told:
            return HTTPStatus.BAD_GATEWAY, "; ".join(map(str, answers))
        for answer in told:
            if answer.is_error:
                return answer.status_code, words_of(answer.content)
        return HTTPStatus.OK, ""

    async def _insist(self, flights: Sequence[Flight], rid: str | None) -> None:
        """Returns once `flights` are over, at most INSIST_S later. A decode engine that had not read a request when
        it was told to abort it is told again."""
        pending = {flight.landed: flight for flight in flights}
        with suppress(TimeoutError):
            async with asyncio.timeout(INSIST_S):
                while pending:
                    await asyncio.wait(pending, timeout=INSIST_EVERY_S)
                    pending = {landed: flight for landed, flight in pending.items() if not landed.done()}
                    orders = [rid] if rid else [name for flight in pending.values() for name in flight.orders]
                    for order in orders if pending else ():
                        content = json.dumps({"rid": order}).encode()
                        await self._ask_all(self._sides.decode.values(), "POST", ABORT, content)

    async def server_info(self) -> dict[str, Any]:
        """A decode engine's own, and beside it the router and the engines of both sides as they are now."""
        described = asyncio.create_task(self._sides.describe(self._sides.all))
        answer = await self.of_decode("/server_info")
        await described
        return {**answer.json(), "router": self._router(), "pair": self._pair()}

    async def metrics(self) -> str:
        """The decode engine's page, and the router's counters."""
        page = (await self.of_decode("/metrics")).text
        lines: list[str] = []
        for counter, help_ in _METRICS.items():
            name = f"harness:router_{counter}_total"
            value = getattr(self._proxy.counters, counter)
            lines += [f"# HELP {name} {help_}", f"# TYPE {name} counter", f"{name} {value}"]
        return page + "\n".join(lines) + "\n"

    def _router(self) -> dict[str, Any]:
        counters = self._proxy.counters
        return {
            "url": self._url,
            "nonce": self._config.nonce,
            "pid": os.getpid(),
            "request_timeout": self._config.request_timeout,
            "attempts": self._config.attempts,
            "counters": {counter: getattr(counters, counter) for counter in _METRICS},
        }

    def _pair(self) -> dict[str, Any]:
        return {
            "prefill": [self._sides.picture(engine) for engine in self._sides.prefill.values()],
            "decode": [self._sides.picture(engine) for engine in self._sides.decode.values()],
        }

    async def _ask_all(
        self, engines: Iterable[Engine], method: str, path: str, content: bytes = b""
    ) -> list[httpx.Response | str]:
        return await asyncio.gather(*(self._ask(engine, method, path, content) for engine in engines))

    async def _ask(
        self, engine: Engine, method: str, path: str, content: bytes = b""
    ) -> httpx.Response | str:
        """The answer, whatever its status; words naming the engine where there is none."""
        try:
            async with asyncio.timeout(STATE_S):
                return await self._http.request(method, f"{engine.url}{path}", content=content)
        except TimeoutError:
            return f"{engine}: no answer to {method} {path} within {STATE_S:g} s"
        except httpx.HTTPError as error:
            return f"{engine}: {in_words(error)}"


def _trouble(engine: Engine, health: httpx.Response | str) -> str:
    """What is wrong with an engine that answered so to GET /health, "" if it is well."""
    if isinstance(health, str):
        return health
    if health.is_error:
        return f"{engine}: answered {health.status_code}: {words_of(health.content)}"
    return "" if engine.trouble is None else f"{engine}: {engine.trouble.words}"
