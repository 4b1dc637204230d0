"""The router as a process: bind, wait until every engine answers, refuse what is no pair, listen, serve until told to
stop.

SIGTERM and SIGINT are the clean way out at any moment: exit code 0. Requests under way get a moment to end, then
an error; the engines hear of them by their closed calls.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import sys
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from harness.errors import EngineLaunchError, UsageError
from harness.refengine.listening import announce, check_ready_file, listen, reserve, url_of
from harness.refengine.process import introduce
from harness.refengine.router.app import make_app
from harness.refengine.router.config import RouterConfig
from harness.refengine.router.flight import Ending
from harness.refengine.router.policy import Cause
from harness.refengine.router.proxy import Proxy
from harness.refengine.router.sides import Sides, make_http
from harness.refengine.router.state import State

# When told to stop, requests under way get this long, and then as long again to be told so.
FINISH_S = 0.5
CLOSE_S = 1
# How often engines that are not up yet are asked again.
POLL_S = 0.2


def route(config: RouterConfig, *, ready_file: Path | None = None) -> int:
    """Run a router until it is told to stop; returns the exit code. Call it from the main thread.

    `ready_file` gets `{url, pid, nonce, pids}` as JSON once all engines have answered.
    Raises UsageError where the port is taken or two engines are no pair, EngineLaunchError where an engine does not
    come up in `wait_ready` seconds.
    """
    check_ready_file(ready_file)
    config = replace(config, nonce=config.nonce or secrets.token_hex(8))
    introduce("router")
    with reserve(config.host, config.port) as listener:
        asyncio.run(_run(config, listener=listener, ready_file=ready_file))
    return 0


async def _run(config: RouterConfig, *, listener: socket.socket, ready_file: Path | None) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Stays in force under uvicorn's own handlers: the loop hears of every signal by its wakeup descriptor.
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(make_http())
        sides = Sides(prefill=config.prefill, decode=config.decode, http=http)
        if not await _unless_stopped(stop, wait_for_sides(sides, seconds=config.wait_ready)):
            return
        url = url_of(listener)
        proxy = Proxy(config, sides=sides, http=http)
        stack.push_async_callback(proxy.close)
        app = make_app(proxy, State(config, url=url, sides=sides, proxy=proxy, http=http))
        watching = asyncio.create_task(sides.watch())
        stack.callback(watching.cancel)
        listen(listener)
        announce(url, nonce=config.nonce, pids={"router": os.getpid()}, ready_file=ready_file)
        await _serve(app, proxy, listener=listener, stop=stop)


async def wait_for_sides(sides: Sides, *, seconds: float) -> None:
    """Returns once every engine has described itself and all of them are pairs. Raises as `route` does."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    said: set[str] = set()
    while missing := await _missing(sides):
        if loop.time() >= end:
            raise EngineLaunchError(f"not up after {seconds:g} s: {'; '.join(missing)}")
        for line in missing:
            if line not in said:
                print(f"router: waiting for {line}", file=sys.stderr, flush=True)
        said.update(missing)
        await asyncio.sleep(POLL_S)
    for prefill in sides.prefill.values():
        for decode in sides.decode.values():
            if refused := sides.refuse(prefill, decode):
                raise UsageError(f"{prefill} and {decode} are no pair: {refused}")


async def _missing(sides: Sides) -> list[str]:
    """Engines that are not up, each with what it met. Raises UsageError for one that never will be."""
    await sides.describe(engine for engine in sides.all if engine.trouble is not None)
    missing: list[str] = []
    for engine in sides.all:
        if engine.trouble is not None:
            line = f"{engine}: {engine.trouble.words}"
            if engine.trouble.cause is Cause.UNFIT:
                raise UsageError(line)
            missing.append(line)
    return missing


async def _unless_stopped(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Whether `work` came to its end before the router was told to stop."""
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if working.done():
        working.result()
        return True
    working.cancel()
    return False


async def _serve(app: FastAPI, proxy: Proxy, *, listener: socket.socket, stop: asyncio.Event) -> None:
    server = uvicorn.Server(
        uvicorn.Config(
            app, log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=CLOSE_S
        )
    )
    serving, stopping = (
        asyncio.create_task(server.serve(sockets=[listener])),
        asyncio.create_task(stop.wait()),
    )
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    await asyncio.wait({serving}, timeout=FINISH_S)
    proxy.flights.end_all(Ending.STOPPING)
    await serving
    stopping.cancel()
