"""The prefill rank's end of all handovers.

The rank notes what there is to send (`open`, `chunk`, `finish`, `drop`); the sender's thread speaks with decode ranks
and reads the pool, one block at a time, under the lock that both take. What a handover is made of is in `rooms` and
`sending`; here is what moves.
Failure rule: a connection that ends fails the rooms that it serves, at once. So does a decode rank that does not keep
to the protocol, which is refused all else.
"""

from __future__ import annotations

import socket
import time
from collections import Counter, deque
from collections.abc import Callable
from threading import RLock
from typing import Any

import zmq

from harness.errors import UsageError
from harness.refengine.config import EngineConfig
from harness.refengine.kv_pool import KVPool
from harness.refengine.transfer.events import HandoverEvent
from harness.refengine.transfer.handshake import EngineShape
from harness.refengine.transfer.io_thread import IoThread, Watch, address, receive_all
from harness.refengine.transfer.packing import pack_rows
from harness.refengine.transfer.rooms import Rooms
from harness.refengine.transfer.sending import Chunk, Link, Pair, admit
from harness.refengine.transfer.silence import PROGRESS_MS, SilenceClock
from harness.refengine.transfer.transports import TransportError, make_transport
from harness.refengine.transfer.wire import Block, End, Hello, Refuse, WireError, decode, encode
from harness.topology import KVLayout

# The largest thing that a decode rank says is a Hello that describes a NIXL agent: some KB, by its network devices.
MAX_TOLD_BYTES = 1 << 20


class KVSender:
    """Sends what this prefill rank's pool holds to the decode ranks that own it. Made after the fork: it has a thread.

    `tell` is called from that thread, and never under the lock. Raises UsageError where the transport cannot be used
    here or no port can be bound. Its methods may be called from any thread; for a rid that is unknown, since it was
    dropped or has failed, they do nothing.
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
    ) -> None:
        self._config, self._shape, self._tp_rank = config, shape, tp_rank
        self._pool, self._tell = pool, tell
        self._lock = RLock()
        self._rooms = Rooms(tp_rank=tp_rank, layout=layout)
        self._rows_to: Counter[int] = Counter()
        self._bytes_to: Counter[int] = Counter()
        self._links: dict[bytes, Link] = {}
        # Connections that are up, by descriptor: one that ends before its Hello was read never becomes a link.
        self._connected: set[int] = set()
        self._ended: deque[Link] = deque()
        self._clock = SilenceClock(config.transfer_timeout)
        self._transport = make_transport(config.disaggregation_transfer_backend)
        self._io = IoThread(f"kv-sender-{tp_rank}", turn=self._turn, end=self._end)
        self._router = self._io.socket(
            zmq.ROUTER, silence_s=config.transfer_timeout, max_bytes=MAX_TOLD_BYTES
        )
        self._watch = Watch(self._io, self._router)
        try:
            self.port = _bind(self._router, config.host)
        except UsageError:
            self._io.close()
            raise
        self._io.start()

    def open(self, rid: str, *, room: int, prompt_len: int) -> None:
        """Await the decode ranks of `room`; `Bound` is told when all have registered.

        `Failed` is told where another open request has this room, or a decode rank has given it up already.
        """
        with self._lock:
            self._rooms.open(rid, number=room, prompt_len=prompt_len)
        self._io.wake()

    def chunk(self, rid: str, *, start: int, stop: int, pages: tuple[int, ...]) -> None:
        """Positions start..stop-1 are in the pool, in these logical pages of the sequence: send them."""
        with self._lock:
            self._rooms.chunk(rid, Chunk(start=start, stop=stop, pages=pages))
        self._io.wake()

    def finish(self, rid: str, *, first: dict[str, Any] | None) -> None:
        """All chunks were told; `first` is the first token, sent on by rank 0 only. `Sent` follows."""
        with self._lock:
            self._rooms.finish(rid, first)
        self._io.wake()

    def drop(self, rid: str, *, why: str = "") -> None:
        """Give a handover up. Once it returns nothing is read from the pool for it; decode ranks are told why."""
        with self._lock:
            self._rooms.drop(rid, why)
        self._io.wake()

    def stats(self) -> dict[str, Any]:
        """Rows, and bytes of keys and values, sent so far; "to" by decode TP rank. Rooms open, blocks waiting."""
        with self._lock:
            return {
                "bytes_sent": self._bytes_to.total(),
                "rows_sent": self._rows_to.total(),
                "to": {
                    str(rank): {"bytes": self._bytes_to[rank], "rows": rows}
                    for rank, rows in sorted(self._rows_to.items())
                },
                "open": len(self._rooms),
                "waiting_blocks": self._rooms.waiting_blocks(),
            }

    def close(self) -> None:
        """End the thread and all connections; decode ranks see them end. Nothing is told any more."""
        self._io.close()

    # All that follows runs in the thread.

    def _turn(self) -> int | None:
        # In this order: whatever came before the end of a connection is heard before the end is acted upon.
        self._watch_connections()
        for frames in receive_all(self._router):
            self._hear(frames)
        while self._ended:
            link = self._ended.popleft()
            self._lose(link, f"decode rank {link.tp_rank} has ended or cannot be reached any more")
        now = time.monotonic()
        if self._clock.due(now):
            with self._lock:
                self._rooms.fail_overdue(now=now, limit=self._config.transfer_timeout)
        self._send()
        while self._rooms.events:
            self._tell(self._rooms.events.popleft())
        if any(link.leaving for link in self._links.values()):
            return PROGRESS_MS
        return self._clock.until_next_ms(now) if len(self._rooms) else None

    def _end(self) -> None:
        self._watch.close()
        for link in self._links.values():
            link.writer.close()
        self._transport.close()

    def _watch_connections(self) -> None:
        for fd, connected in self._watch.changes():
            if connected:
                self._connected.add(fd)
            else:
                self._connected.discard(fd)
                self._note_end(fd)

    def _note_end(self, fd: int) -> None:
        self._ended += [link for link in self._links.values() if link.fd == fd]

    def _lose(self, link: Link, why: str) -> None:
        if self._links.pop(link.identity, None) is None:
            return
        with self._lock:
            self._rooms.lose(link, why)
        link.writer.close()

    def _hear(self, frames: list[zmq.Frame]) -> None:
        identity, told = frames[0].bytes, frames[-1]
        link = self._links.get(identity)
        try:
            message = decode(told.bytes)
            if isinstance(message, Hello) and link is None:
                self._meet(message, identity, fd=int(told.get(zmq.SRCFD)))
            elif link is not None:
                with self._lock:
                    self._rooms.obey(link, message)
        except WireError as error:
            self._refuse(identity, str(error))
            if link is not None:
                self._lose(link, f"decode rank {link.tp_rank} does not keep to the protocol: {error}")

    def _meet(self, hello: Hello, identity: bytes, *, fd: int) -> None:
        # Descriptors are used again: a second Hello over one means that the first connection has ended.
        self._watch_connections()
        self._note_end(fd)
        if fd not in self._connected:
            return
        try:
            self._links[identity] = admit(
                hello,
                identity=identity,
                fd=fd,
                nonce=self._config.nonce,
                shape=self._shape,
                tp_rank=self._tp_rank,
                dtype=self._pool.kv.dtype,
                transport=self._transport,
                now=time.monotonic(),
            )
        except (UsageError, TransportError) as error:
            self._refuse(identity, str(error))

    def _refuse(self, identity: bytes, why: str) -> None:
        self._router.send_multipart([identity, encode(Refuse(why=why))])

    def _send(self) -> None:
        for link in list(self._links.values()):
            try:
                while self._decide(link):
                    pass
                self._let_go(link)
            except TransportError as error:
                self._lose(link, f"cannot write to decode rank {link.tp_rank}: {error}")
        # Last: what was just lost may have to be told to others.
        while self._rooms.outbox:
            identity, message = self._rooms.outbox.popleft()
            self._router.send_multipart([identity, encode(message)])

    def _decide(self, link: Link) -> bool:
        """Put the next thing for a decode rank into `leaving`; False where there is none, or no credit for it."""
        with self._lock:
            if not link.work:
                return False
            pair = link.work[0]
            if pair.has_rows():
                return self._pack(pair)
            link.work.popleft()
            if pair.room.finished:
                first = pair.room.first if self._tp_rank == link.tp_rank == 0 else None
                pair.ended, pair.since = True, time.monotonic()
                link.leaving.append(
                    (End(room=pair.room.number, rows=pair.rows_sent, first=first), None, None)
                )
            return True

    def _pack(self, pair: Pair) -> bool:
        link = pair.link
        if not link.free or link.route is None:
            return False
        rows = pair.take_rows()
        block = pack_rows(self._pool, rows, link.route.source_heads)
        self._rows_to[link.tp_rank] += len(rows)
        self._bytes_to[link.tp_rank] += block.kv.nbytes
        payload, slot = block.to_bytes(), link.free.popleft()
        header = Block(room=pair.room.number, slot=slot, rows=len(rows), size=len(payload))
        link.leaving.append((header, slot, link.writer.write(slot, payload)))
        return True

    def _let_go(self, link: Link) -> None:
        """Send what was decided, as far as it is written."""
        while link.leaving:
            message, slot, inline = link.leaving[0]
            if slot is not None and not link.writer.written(slot):
                return
            link.leaving.popleft()
            payload = [] if inline is None else [inline]
            self._router.send_multipart([link.identity, encode(message), *payload])


def _bind(router: zmq.Socket[bytes], host: str) -> int:
    """Listen on any free port of `host`, a name or a number; raises UsageError where it is none of this machine."""
    try:
        ip = str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
        router.ipv6 = ":" in ip
        return router.bind_to_random_port(address(ip, 0).removesuffix(":0"))
    except (OSError, zmq.ZMQError) as error:
        raise UsageError(f"--host {host}: no port for handing KV over can be had: {error}") from error
