"""A decode rank's handovers: the places that await a prompt's KV, and what each message does to them.

A `Place` is one handover on this rank, a `Part` what one prefill rank brings of it. Not safe across threads:
`KVReceiver` calls everything under its lock. Nothing but `Places.put` writes to the pool, and only into the rows of a
place that is still known: a place that was dropped or has failed is forgotten first.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from harness.refengine.kv_pool import KVPool
from harness.refengine.transfer.events import Arrived, Failed, HandoverEvent, PeerInfo
from harness.refengine.transfer.first_token import odd_in_first
from harness.refengine.transfer.handshake import EngineShape
from harness.refengine.transfer.packing import (
    Block,
    BlockFormat,
    destination_rows,
    expected_positions,
    unpack_rows,
)
from harness.refengine.transfer.pairs import block_format
from harness.refengine.transfer.routes import Route
from harness.refengine.transfer.wire import Block as BlockHeader
from harness.refengine.transfer.wire import Cancel, Done, End, Message, Register
from harness.topology import KVLayout


@dataclass(slots=True, kw_only=True, eq=False)
class Part:
    """What prefill rank `source` brings: the i-th row it sends goes to `rows[i]`. Without a `route` there are none."""

    source: int
    route: Route | None
    form: BlockFormat | None
    rows: Tensor
    since: float
    num_arrived: int = 0
    ended: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class Place:
    """One handover on this rank; `parts` by prefill TP rank, none before the thread has begun with it."""

    rid: str
    room: int
    index: int
    prompt_len: int
    pages: tuple[int, ...]
    peer: PeerInfo
    parts: dict[int, Part] = field(default_factory=dict)
    first: dict[str, Any] | None = None


class Places:
    """The places of decode rank `tp_rank`. `outbox` holds (peer, prefill rank, message)."""

    def __init__(self, *, shape: EngineShape, tp_rank: int, pool: KVPool, layout: KVLayout) -> None:
        self.outbox: deque[tuple[PeerInfo, int, Message]] = deque()
        self.events: deque[HandoverEvent] = deque()
        # Given up before any prefill rank was told: what each of them is to be told.
        self.declined: deque[tuple[PeerInfo, tuple[Message, Message]]] = deque()
        self.rows_from: Counter[int] = Counter()
        self.bytes_from: Counter[int] = Counter()
        self._shape, self._tp_rank = shape, tp_rank
        self._pool, self._layout = pool, layout
        # By room number and by rid, the same places.
        self._places: dict[int, Place] = {}
        self._by_rid: dict[str, Place] = {}

    def __len__(self) -> int:
        return len(self._places)

    def add(self, place: Place) -> None:
        """Fails it where its room is in use already."""
        if place.room in self._places:
            self.events.append(Failed(place.rid, f"room {place.room} is in use by another request"))
            return
        self._places[place.room] = self._by_rid[place.rid] = place

    def decline(self, peer: PeerInfo, *, room: int, prompt_len: int, why: str) -> None:
        """Have the prefill ranks told that nobody will take this prompt. One that has not opened the room remembers."""
        self.declined.append((peer, (Register(room=room, prompt_len=prompt_len), Cancel(room=room, why=why))))

    def new(self) -> list[Place]:
        """Those that no prefill rank has been told of yet."""
        return [place for place in self._places.values() if not place.parts]

    def begin(self, place: Place, sources: dict[int, Route | None]) -> None:
        """Work out what each of its sources brings, and where that goes."""
        for source, route in sources.items():
            form = None if route is None else block_format(self._shape, route, self._pool.kv.dtype)
            place.parts[source] = Part(
                source=source, route=route, form=form, rows=self._rows(place, route), since=time.monotonic()
            )

    def put(self, peer: PeerInfo, source: int, header: BlockHeader, payload: bytes | memoryview) -> None:
        """Write a block into the pool; one of a room that is no longer known goes nowhere.

        A block that does not fit what is awaited fails its place.
        """
        if (found := self._find(header.room, peer, source)) is None:
            return
        place, part = found
        if part.route is None or part.form is None or header.size != header.rows * part.form.row_bytes:
            self._fail(
                place, f"prefill rank {source} sent {header.rows} rows in {header.size} B, of another shape"
            )
        elif part.num_arrived + header.rows > len(part.rows):
            self._fail(
                place, f"prefill rank {source} sent more than the {len(part.rows)} rows awaited from it"
            )
        elif header.rows:
            rows = part.rows[part.num_arrived : part.num_arrived + header.rows]
            block = Block.from_bytes(payload, part.form)
            unpack_rows(self._pool, block, index=place.index, rows=rows, heads=part.route.destination_heads)
            part.num_arrived += header.rows
            part.since = time.monotonic()
            self.rows_from[source] += header.rows
            self.bytes_from[source] += block.kv.nbytes

    def end(self, peer: PeerInfo, source: int, message: End) -> None:
        """A source has sent all; the last one completes the place."""
        if (found := self._find(message.room, peer, source)) is None:
            return
        place, part = found
        if not part.num_arrived == message.rows == len(part.rows):
            self._fail(
                place,
                f"{len(part.rows)} rows were awaited from prefill rank {source}, {part.num_arrived} arrived,"
                f" and it says that it sent {message.rows}",
            )
            return
        # Every prompt has a first token, and nobody else tells it.
        if source == self._tp_rank == 0 and (odd := odd_in_first(message.first or {}, place.prompt_len)):
            self._fail(place, f"prefill rank 0 told a first token whose {odd} makes no sense")
            return
        part.ended = True
        if source == self._tp_rank == 0:
            place.first = message.first
        self.outbox.append((place.peer, source, Done(room=place.room)))
        if all(part.ended for part in place.parts.values()):
            self.events.append(Arrived(place.rid, place.first))
            self._remove(place)

    def cancelled(self, peer: PeerInfo, source: int, message: Cancel) -> None:
        """A source has given a room up."""
        if (found := self._find(message.room, peer, source)) is not None:
            self._fail(found[0], message.why)

    def drop(self, rid: str, why: str) -> None:
        """Forget a place on this engine's own account, of which it need not be told."""
        if place := self._by_rid.get(rid):
            if not place.parts:
                self.decline(place.peer, room=place.room, prompt_len=place.prompt_len, why=why)
            self._forget(place, why)

    def fail(self, place: Place, why: str) -> None:
        """Fail a place, if it is still known."""
        if self._places.get(place.room) is place:
            self._fail(place, why)

    def lose(self, peer: PeerInfo, source: int, why: str) -> None:
        """Fail all that still awaits something from this source."""
        for place in list(self._places.values()):
            part = place.parts.get(source)
            if place.peer == peer and part is not None and not part.ended:
                self._fail(place, why)

    def fail_overdue(self, moved: dict[tuple[PeerInfo, int], float], *, now: float, limit: float) -> None:
        """Fail each place that awaits something from a source of which nothing was heard for `limit` seconds.

        `moved` says when something was heard last. Anything counts: a rank serves its handovers in turn.
        """
        for place in list(self._places.values()):
            for part in place.parts.values():
                heard = max(part.since, moved.get((place.peer, part.source), 0.0))
                if not part.ended and now - heard > limit:
                    self._fail(
                        place,
                        f"prefill rank {part.source} said nothing for {limit:g} s;"
                        f" {part.num_arrived} of {len(part.rows)} rows have arrived from it",
                    )
                    break

    def _rows(self, place: Place, route: Route | None) -> Tensor:
        positions = expected_positions(
            place.peer.shape.layout(),
            self._shape.layout(),
            length=0 if route is None else place.prompt_len,
            source_dcp_rank=0 if route is None else route.source_dcp_rank,
            destination_dcp_rank=0 if route is None else route.destination_dcp_rank,
        )
        return destination_rows(self._layout, place.pages, positions)

    def _find(self, room: int, peer: PeerInfo, source: int) -> tuple[Place, Part] | None:
        """Who awaits this from that source; None where it was forgotten."""
        place = self._places.get(room)
        if place is None or place.peer != peer or source not in place.parts:
            return None
        return place, place.parts[source]

    def _fail(self, place: Place, why: str) -> None:
        self.events.append(Failed(place.rid, why))
        self._forget(place, why)

    def _forget(self, place: Place, why: str) -> None:
        self._remove(place)
        for source in place.parts:
            self.outbox.append((place.peer, source, Cancel(room=place.room, why=why)))

    def _remove(self, place: Place) -> None:
        del self._places[place.room], self._by_rid[place.rid]
