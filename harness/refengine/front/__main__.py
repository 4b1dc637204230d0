"""Entry point of the front process: the launcher hands it the listening socket and the ranks' pipes."""

from __future__ import annotations

import asyncio
import socket
import sys

from harness.refengine.process import die_with_parent, introduce
from harness.refengine.wiring import Wiring

# When told to stop, answers in flight get this long. The launcher waits a little longer.
FINISH_S = 1


def main(argv: list[str]) -> int:
    """Serve until told to stop. The launcher hears of it when every rank has answered."""
    wiring = Wiring.from_argv(argv)
    die_with_parent(wiring.parent)
    introduce("front")
    # Imported late, so that this process is tied to its parent before the half second that FastAPI takes.
    import uvicorn

    from harness.refengine.front.app import make_app
    from harness.refengine.front.link import EngineLink

    link = EngineLink(wiring)
    server = uvicorn.Server(
        uvicorn.Config(
            make_app(wiring, link),
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=FINISH_S,
        )
    )

    async def serve() -> None:
        connected = asyncio.create_task(link.connect())
        await server.serve(sockets=[socket.socket(fileno=wiring.listener)])
        connected.cancel()

    asyncio.run(serve())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
