"""A decode rank's connection to one prefill rank: never taken up again once it is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

import zmq

from harness.errors import UsageError
from harness.refengine.transfer.events import PeerInfo
from harness.refengine.transfer.io_thread import IoThread, Watch, address, receive_all
from harness.refengine.transfer.transports import Window
from harness.refengine.transfer.transports.base import MAX_OFFER_BYTES
from harness.refengine.transfer.wire import Message, encode

# Milliseconds until ZeroMQ connects again by itself: longer than a lost link is kept, since on a new connection
# nobody knows what was said on the old one. Not -1, its number for never: that drops what has come and was not read.
_NEVER = 3_600_000

# A block fits into a slot. The log-probabilities of a prompt, with many alternatives to each token, take megabytes.
MAX_TOLD_BYTES = MAX_OFFER_BYTES


class SourceLink:
    """Owns its window. Raises UsageError for an address that is none.

    `moved` is when something was last heard, or the link was made (`time.monotonic`).
    """

    def __init__(
        self, io: IoThread, window: Window, *, peer: PeerInfo, source: int, silence_s: float
    ) -> None:
        self.peer = peer
        self.source = source
        self.window = window
        self.moved = time.monotonic()
        self._io = io
        self._dealer = io.socket(zmq.DEALER, silence_s=silence_s, max_bytes=MAX_TOLD_BYTES)
        self._dealer.reconnect_ivl = _NEVER
        self._dealer.ipv6 = ":" in peer.host
        self._watch = Watch(io, self._dealer)
        try:
            self._dealer.connect(address(peer.host, peer.ports[source]))
        except zmq.ZMQError as error:
            self.close()
            raise UsageError(f"{self.where} is no address to connect to: {error}") from error

    @property
    def where(self) -> str:
        """The other end, in words."""
        return f"prefill rank {self.source} at {self.peer.host}:{self.peer.ports[self.source]}"

    def say(self, message: Message) -> None:
        """Never waits: where the connection has ended there is nobody to say it to, and `lost` will tell."""
        with suppress(zmq.Again):
            self._dealer.send(encode(message), zmq.NOBLOCK)

    def heard(self) -> Iterator[list[zmq.Frame]]:
        """Every message that has come."""
        for frames in receive_all(self._dealer):
            self.moved = time.monotonic()
            yield frames

    def lost(self) -> bool:
        """Whether the connection has ended, or never came about; all that was said before has been heard then."""
        return any(not connected for _, connected in self._watch.changes())

    def close(self) -> None:
        self._watch.close()
        self._io.forget(self._dealer)
        self.window.close()
