"""A server that answers as it is told, over a real socket: what engines do wrong, on demand."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# (path, body) -> (status, raw answer), or None to close the connection without one.
Respond = Callable[[str, dict[str, object]], "tuple[int, bytes] | None"]


@contextmanager
def serving(respond: Respond) -> Iterator[str]:
    """Yields the URL of a server that answers each request by `respond`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length", 0))
            self._answer(json.loads(self.rfile.read(length) or b"{}"))

        def _answer(self, body: dict[str, object]) -> None:
            answer = respond(self.path, body)
            if answer is None:
                self.connection.close()
                return
            status, raw = answer
            self.send_response(status)
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
