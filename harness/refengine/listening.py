"""How a server of this package appears to whoever starts it: its socket, its URL, its ready file."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

from harness.errors import UsageError

# A burst of requests connects at once; the kernel caps this at net.core.somaxconn.
BACKLOG = 2048


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. It listens from the start, so that a port in use is found here, as a UsageError."""
    listener = reserve(host, port)
    listen(listener)
    return listener


def reserve(host: str, port: int) -> socket.socket:
    """A socket that has its address and does not listen yet: who connects is refused, and can tell.

    Raises UsageError where the address is none of this host's, or somebody listens there.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A port whose last connections linger in TIME_WAIT is free; one that is listened on is not.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise _no_listening(host, port, error) from error
    return listener


def listen(listener: socket.socket) -> None:
    """Accept connections from now on. Raises UsageError, with the socket closed, where another has come first."""
    host, port = listener.getsockname()[:2]
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise _no_listening(host, port, error) from error


def _no_listening(host: str, port: int, error: OSError) -> UsageError:
    return UsageError(f"cannot listen on {host}:{port}: {error.strerror or error}")


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def check_ready_file(ready_file: Path | None) -> None:
    """Raises UsageError where it could not be written."""
    if ready_file is None:
        return
    if not ready_file.parent.is_dir():
        raise UsageError(f"--ready-file {ready_file}: there is no directory {ready_file.parent}")
    if ready_file.is_dir():
        raise UsageError(f"--ready-file {ready_file} is a directory")
    if not os.access(ready_file.parent, os.W_OK):
        raise UsageError(f"--ready-file {ready_file}: {ready_file.parent} cannot be written to")


def announce(url: str, *, nonce: str, pids: dict[str, Any], ready_file: Path | None) -> None:
    """Tell whoever started this process: the ready file first, then the one line on stdout."""
    if ready_file is not None:
        # Written aside and renamed, so that nobody reads half of it.
        partial = ready_file.with_name(f"{ready_file.name}.{os.getpid()}")
        partial.write_text(json.dumps({"url": url, "pid": os.getpid(), "nonce": nonce, "pids": pids}))
        partial.replace(ready_file)
    print(f"ready {url} nonce={nonce} pid={os.getpid()}", flush=True)
