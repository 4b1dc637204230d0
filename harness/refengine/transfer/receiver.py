"""The decode rank's end of all handovers.

The rank notes what it awaits (`expect`, `drop`); the receiver's thread connects to prefill ranks, once for each launch
of a prefill engine, and writes what they send into the pool, one block at a time, under `lock`. What a handover is
made of is in `arriving`; here is what moves.
Failure rule: a connection that ends fails the requests that still await something over it, at once, and is made anew
only for requests that come later.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from threading import RLock
from typing import Any

import zmq

from harness.errors import UsageError
from harness.refengine.config import EngineConfig
from harness.refengine.kv_pool import KVPool
from harness.refengine.transfer.arriving import Place, Places
from harness.refengine.transfer.events import HandoverEvent, PeerInfo
from harness.refengine.transfer.handshake import EngineShape
from harness.refengine.transfer.io_thread import IoThread
from harness.refengine.transfer.packing import BlockFormat
from harness.refengine.transfer.pairs import sources_of
from harness.refengine.transfer.silence import PROGRESS_MS, SilenceClock
from harness.refengine.transfer.source_link import SourceLink
from harness.refengine.transfer.transports import TransportError, make_transport
from harness.refengine.transfer.transports.base import SlotSizes
from harness.refengine.transfer.wire import (
    Block,
    Cancel,
    Credit,
    End,
    Hello,
    Message,
    Refuse,
    Register,
    WireError,
    decode,
)
from harness.topology import KVLayout

# Blocks under way from one prefill rank: one is written while others are read, and some are on the wire.
NUM_SLOTS = 4
# Large enough that a block's cost is its bytes, small enough that the lock is never held for long.
SLOT_BYTES = 256 << 10


class KVReceiver:
    """Puts what prefill ranks send into this decode rank's pool. Made after the fork: it has a thread.

    `tell` is called from that thread, and never under `lock`. `lock` is held while a block is written: take it to see
    the pool between two blocks. Raises UsageError where the transport cannot be used here. Its methods may be called
    from any thread.
    """

    def __init__(
        self,
        *,
        config: EngineConfig,
        shape: EngineShape,
        tp_rank: int,
        pool: KVPool,
        layout: KVLayout,
        tell: Callable[[HandoverEvent], None],
        slots: int = NUM_SLOTS,
        slot_bytes: int = SLOT_BYTES,
    ) -> None:
        self.lock = RLock()
        self._shape, self._tp_rank, self._tell = shape, tp_rank, tell
        self._limit = config.transfer_timeout
        # At least one row of all the heads that this rank stores: no route brings more.
        row = BlockFormat(
            num_layers=shape.num_layers,
            kv_heads=len(shape.kv_heads(tp_rank)),
            head_dim=shape.head_dim,
            dtype=pool.kv.dtype,
        )
        self._sizes = SlotSizes(slots=slots, slot_bytes=max(slot_bytes, row.row_bytes))
        self._places = Places(shape=shape, tp_rank=tp_rank, pool=pool, layout=layout)
        self._links: dict[tuple[PeerInfo, int], SourceLink] = {}
        self._clock = SilenceClock(self._limit)
        self._transport = make_transport(config.disaggregation_transfer_backend)
        self._io = IoThread(f"kv-receiver-{tp_rank}", turn=self._turn, end=self._end)
        self._io.start()

    def expect(
        self, rid: str, *, room: int, index: int, prompt_len: int, pages: tuple[int, ...], peer: PeerInfo
    ) -> None:
        """`pages` await the prompt of the request with tag `index`. `Arrived` or `Failed` follows."""
        place = Place(rid=rid, room=room, index=index, prompt_len=prompt_len, pages=pages, peer=peer)
        with self.lock:
            self._places.add(place)
        self._io.wake()

    def drop(self, rid: str, *, why: str = "") -> None:
        """Give a handover up. Once it returns nothing is written to the pool for it; prefill ranks are told why.

        No-op for a rid that is unknown, since it has arrived or failed.
        """
        with self.lock:
            self._places.drop(rid, why)
        self._io.wake()

    def decline(self, *, room: int, prompt_len: int, peer: PeerInfo, why: str) -> None:
        """This engine refuses or has given up a request before `expect`: prefill ranks are told why."""
        with self.lock:
            self._places.decline(peer, room=room, prompt_len=prompt_len, why=why)
        self._io.wake()

    def stats(self) -> dict[str, Any]:
        """Rows, and bytes of keys and values, received so far; "from" by prefill TP rank. Places open."""
        with self.lock:
            rows, sizes = self._places.rows_from, self._places.bytes_from
            return {
                "bytes_received": sizes.total(),
                "rows_received": rows.total(),
                "from": {
                    str(rank): {"bytes": sizes[rank], "rows": count} for rank, count in sorted(rows.items())
                },
                "open": len(self._places),
            }

    def close(self) -> None:
        """End the thread and all connections; prefill ranks see them end. Nothing is told or written any more."""
        self._io.close()

    # All that follows runs in the thread.

    def _turn(self) -> int | None:
        self._begin_new()
        for link in list(self._links.values()):
            self._hear(link)
        now = time.monotonic()
        if self._clock.due(now):
            moved = {key: link.moved for key, link in self._links.items()}
            with self.lock:
                self._places.fail_overdue(moved, now=now, limit=self._limit)
        while self._places.outbox:
            peer, source, message = self._places.outbox.popleft()
            if (reached := self._links.get((peer, source))) is not None:
                reached.say(message)
        while self._places.events:
            self._tell(self._places.events.popleft())
        if not len(self._places):
            return None
        return PROGRESS_MS if self._transport.progress() else self._clock.until_next_ms(now)

    def _end(self) -> None:
        for link in self._links.values():
            link.close()
        self._transport.close()

    def _begin_new(self) -> None:
        while self._places.declined:
            self._decline(*self._places.declined.popleft())
        with self.lock:
            new = self._places.new()
        for place in new:
            try:
                sources = sources_of(place.peer.shape, self._shape, self._tp_rank)
                links = [self._link(place.peer, source) for source in sources]
            except UsageError as error:
                with self.lock:
                    self._places.fail(place, str(error))
                continue
            with self.lock:
                self._places.begin(place, sources)
            for link in links:
                link.say(Register(room=place.room, prompt_len=place.prompt_len))

    def _decline(self, peer: PeerInfo, messages: tuple[Message, ...]) -> None:
        # An engine that this one cannot reach needs to be told nothing.
        with suppress(UsageError):
            for source in sources_of(peer.shape, self._shape, self._tp_rank):
                link = self._link(peer, source)
                for message in messages:
                    link.say(message)

    def _link(self, peer: PeerInfo, source: int) -> SourceLink:
        """The connection to a prefill rank, made where there is none yet."""
        if (peer, source) not in self._links:
            window = self._transport.window(self._sizes)
            link = SourceLink(self._io, window, peer=peer, source=source, silence_s=self._limit)
            hello = Hello(
                nonce=peer.nonce, tp_rank=self._tp_rank, shape=self._shape.to_dict(), offer=window.offer
            )
            link.say(hello)
            self._links[peer, source] = link
        return self._links[peer, source]

    def _hear(self, link: SourceLink) -> None:
        # In this order: whatever came before the end is heard before the end is believed.
        lost = link.lost()
        try:
            for frames in link.heard():
                self._obey(link, frames)
        except (WireError, TransportError) as error:
            self._lose(link, f"{link.where} does not keep to the protocol: {error}")
            return
        if lost:
            self._lose(link, f"{link.where} has ended or cannot be reached")

    def _obey(self, link: SourceLink, frames: list[zmq.Frame]) -> None:
        message = decode(frames[0].bytes)
        if isinstance(message, Block):
            self._take(link, message, frames[1].bytes if len(frames) > 1 else None)
        elif isinstance(message, End):
            with self.lock:
                self._places.end(link.peer, link.source, message)
        elif isinstance(message, Cancel):
            with self.lock:
                self._places.cancelled(link.peer, link.source, message)
        elif isinstance(message, Refuse):
            raise TransportError(message.why)
        else:
            raise WireError(f"a prefill rank says no {type(message).__name__}")

    def _take(self, link: SourceLink, header: Block, inline: bytes | None) -> None:
        payload = link.window.payload(header.slot, header.size, inline)
        with self.lock:
            self._places.put(link.peer, link.source, header, payload)
        link.say(Credit(slot=header.slot))

    def _lose(self, link: SourceLink, why: str) -> None:
        del self._links[link.peer, link.source]
        with self.lock:
            self._places.lose(link.peer, link.source, why)
        link.close()
