"""`harness engine route`: the router of a pair as a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.refengine.router.config import ATTEMPTS, REQUEST_TIMEOUT_S, WAIT_READY_S, RouterConfig


def route(
    prefill: Annotated[
        list[str], typer.Option(help="URL of a prefill engine; may be repeated, then they take turns.")
    ],
    decode: Annotated[
        list[str], typer.Option(help="URL of a decode engine; may be repeated, then they take turns.")
    ],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 0,
    request_timeout: Annotated[
        float,
        typer.Option(help="Seconds for one request, all attempts together; then it is answered with 504."),
    ] = REQUEST_TIMEOUT_S,
    attempts: Annotated[
        int, typer.Option(help="How often a request is tried while nothing of it has been answered.")
    ] = ATTEMPTS,
    wait_ready: Annotated[
        float, typer.Option(help="Seconds for all engines to come up at the start.")
    ] = WAIT_READY_S,
    nonce: Annotated[str, typer.Option(help="Text that /server_info repeats; random when empty.")] = "",
    ready_file: Annotated[
        Path | None, typer.Option(help="Write {url, pid, nonce, pids} here once ready.")
    ] = None,
) -> None:
    """Send requests through a prefill and a decode engine until SIGTERM or Ctrl-C.

    Prints one line, `ready http://…`, once every engine answers. Engines that are no pair are refused.

    Example: harness engine route --prefill http://127.0.0.1:30000 --decode http://127.0.0.1:30001 --port 30002
    """
    config = RouterConfig(
        prefill=tuple(prefill),
        decode=tuple(decode),
        host=host,
        port=port,
        request_timeout=request_timeout,
        attempts=attempts,
        wait_ready=wait_ready,
        nonce=nonce,
    )
    from harness.refengine.router.server import route as run_router

    raise typer.Exit(run_router(config, ready_file=ready_file))
