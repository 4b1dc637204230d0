"""Questions about the engines and orders to all of them: everything that is no generation."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import httpx

from harness.refengine.router.attempt import ABORT
from harness.refengine.router.config import RouterConfig
from harness.refengine.router.policy import words_of
from harness.refengine.router.proxy import Proxy
from harness.refengine.router.sides import Engine, Sides, in_words

# What needs a step boundary of all ranks may take as long as the engines themselves allow for their health.
STATE_S = 20.0

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
        for engine in sorted(self._sides.decode.values(), key=lambda engine: engine.trouble is not None):
            answer = await self._ask(engine, "GET", path)
            if isinstance(answer, httpx.Response):
                return answer
            words.append(answer)
        raise UnreachableError("; ".join(words))

    async def health(self) -> str:
        """Why no request can be served, "" where each side has an engine that is well."""
        words: list[str] = []
        for engines in (self._sides.prefill.values(), self._sides.decode.values()):
            answers = await self._ask_all(engines, "GET", "/health")
            if not any(_is_good(answer) for answer in answers):
                words += [_in_words(engine, answer) for engine, answer in zip(engines, answers, strict=True)]
        return "; ".join(words)

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
        self._proxy.flights.abort(rid)
        answers: list[httpx.Response | str] = []
        for engines in (self._sides.decode.values(), self._sides.prefill.values()):
            answers += await self._ask_all(engines, "POST", ABORT, content)
        told = [answer for answer in answers if isinstance(answer, httpx.Response)]
        if not told:
            return HTTPStatus.BAD_GATEWAY, "; ".join(map(str, answers))
        for answer in told:
            if answer.is_error:
                return answer.status_code, words_of(answer.content)
        return HTTPStatus.OK, ""

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
            "prefill": [engine.picture() for engine in self._sides.prefill.values()],
            "decode": [engine.picture() for engine in self._sides.decode.values()],
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


def _is_good(answer: httpx.Response | str) -> bool:
    return isinstance(answer, httpx.Response) and answer.is_success


def _in_words(engine: Engine, answer: httpx.Response | str) -> str:
    if isinstance(answer, str):
        return answer
    return f"{engine}: answered {answer.status_code}: {words_of(answer.content)}"
