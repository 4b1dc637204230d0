"""How messages cross a pipe between the front and a rank: four bytes of length, then JSON. No I/O.

A stream socket cuts messages anywhere; `FrameDecoder` joins the pieces. A length above the limit means that
both ends lost step, and raises ValueError instead of waiting for bytes that never come.
"""

from __future__ import annotations

import json
import struct
from typing import Any

_LENGTH = struct.Struct("<I")
LENGTH_BYTES = _LENGTH.size
# The largest message is a dump of all KV rows, some 30 bytes of JSON a row: this holds 30 million rows.
MAX_FRAME_BYTES = 1 << 30


def encode_frame(message: dict[str, Any]) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    return _LENGTH.pack(len(body)) + body


def frame_length(header: bytes) -> int:
    """Bytes of the body that follows; raises ValueError where that cannot be."""
    (length,) = _LENGTH.unpack(header)
    if length > MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {length} bytes; at most {MAX_FRAME_BYTES} are sent")
    return int(length)


class FrameDecoder:
    """Collects bytes as they come; `feed` returns the messages that became complete."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        self._buffer += data
        messages: list[dict[str, Any]] = []
        while len(self._buffer) >= LENGTH_BYTES:
            end = LENGTH_BYTES + frame_length(bytes(self._buffer[:LENGTH_BYTES]))
            if len(self._buffer) < end:
                break
            messages.append(json.loads(self._buffer[LENGTH_BYTES:end]))
            del self._buffer[:end]
        return messages
