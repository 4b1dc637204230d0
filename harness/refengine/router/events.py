"""Server-sent events as they come from an engine: whole ones only, and whether the last one was an end. No I/O.

An engine's stream ends with `[DONE]` or with an error; a stream that just stops was cut off.
"""

from __future__ import annotations

import json
from typing import Any

from harness.refengine.router.policy import error_in

SEPARATOR = b"\n\n"
DATA = b"data: "
DONE = b"[DONE]"


class EventSplitter:
    """Cuts bytes that come in any pieces into events. `rest` is the beginning of one that is not whole yet."""

    def __init__(self) -> None:
        self.rest = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """The events that became whole, each with its separator."""
        # A separator may have begun in the piece before.
        start = max(0, len(self.rest) - len(SEPARATOR) + 1)
        self.rest += piece
        events: list[bytes] = []
        while (end := self.rest.find(SEPARATOR, start)) >= 0:
            end += len(SEPARATOR)
            events.append(bytes(self.rest[:end]))
            del self.rest[:end]
            start = 0
        return events


def error_of(event: bytes) -> dict[str, Any] | None:
    """The error object of an event that is one."""
    return error_in(event.removeprefix(DATA))


def is_end(event: bytes) -> bool:
    return event.removeprefix(DATA).strip() == DONE or error_of(event) is not None


def error_event(error: dict[str, Any]) -> bytes:
    return DATA + json.dumps({"error": error}, separators=(",", ":")).encode() + SEPARATOR
