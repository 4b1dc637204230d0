"""A rank's end of its pipe to the front. Blocking, since a rank has nothing to do while it waits."""

from __future__ import annotations

import signal
import socket
from threading import Lock
from typing import Any, NoReturn

from harness.refengine.frames import FrameDecoder, encode_frame
from harness.refengine.requests import Message, message_from_dict

_READ_BYTES = 1 << 16


class Mailbox:
    """Messages from and to the front. When that is gone, nothing is left to serve: `_await_end`.

    Any thread may send; one collects.
    """

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._decoder = FrameDecoder()
        self._sending = Lock()

    def collect(self, *, wait: bool) -> tuple[Message, ...]:
        """All messages that have arrived whole; with `wait`, blocks until there is one."""
        messages: list[Message] = []
        while True:
            blocking = wait and not messages
            try:
                data = self._socket.recv(_READ_BYTES, 0 if blocking else socket.MSG_DONTWAIT)
            except BlockingIOError:
                return tuple(messages)
            except ConnectionResetError:
                data = b""
            if not data:
                _await_end()
            messages += [message_from_dict(values) for values in self._decoder.feed(data)]

    def send(self, message: dict[str, Any]) -> None:
        """Hand a message to the front, which never stops reading."""
        try:
            with self._sending:
                self._socket.sendall(encode_frame(message))
        except (BrokenPipeError, ConnectionResetError):
            _await_end()


def _await_end() -> NoReturn:
    """The front has ended, so the launcher is about to kill this process. Ending first would blur who died."""
    while True:
        signal.pause()
