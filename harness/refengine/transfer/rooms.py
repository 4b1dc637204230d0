"""A prefill rank's handovers, as values: what each message and each call changes, and what is to be said then.

Not safe across threads: `KVSender` calls everything under its lock, sends what `outbox` holds and tells `events`.
Failure rule: a room fails as a whole, with the first thing that goes wrong in any of its pairs, and once: it is
forgotten, all its decode ranks are told why, and so is the engine.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from harness.refengine.transfer.events import Bound, Failed, HandoverEvent, Sent
from harness.refengine.transfer.sending import Chunk, Link, Pair, Room
from harness.refengine.transfer.silence import overdue_room
from harness.refengine.transfer.wire import Cancel, Credit, Done, Message, Register, WireError
from harness.topology import KVLayout

# Far more than are open at a time (`max_running_requests`), so that nobody who is merely late is forgotten.
MAX_ROOMS = 4096


class Rooms:
    """The rooms of prefill rank `tp_rank`. `outbox` holds (ZeroMQ identity of a decode rank, message)."""

    def __init__(self, *, tp_rank: int, layout: KVLayout) -> None:
        self.outbox: deque[tuple[bytes, Message]] = deque()
        self.events: deque[HandoverEvent] = deque()
        self._tp_rank = tp_rank
        self._layout = layout
        # By room number and by rid, the same rooms.
        self._rooms: dict[int, Room] = {}
        self._by_rid: dict[str, Room] = {}
        # Registrations for rooms that are not open yet, and such rooms that a decode rank has given up meanwhile.
        self._early: dict[int, dict[Link, Register]] = {}
        self._called_off = Reasons()
        self._given_up = Reasons()
        self._registered = 0.0

    def __len__(self) -> int:
        return len(self._rooms)

    def open(self, rid: str, *, number: int, prompt_len: int) -> None:
        """Take in who has registered already; fails a room that is in use, or was given up by a decode rank."""
        if number in self._rooms:
            self.events.append(Failed(rid, f"room {number} is in use by another request"))
        elif (why := self._called_off.pop(number)) is not None:
            self.events.append(Failed(rid, why))
        else:
            self._given_up.pop(number)
            room = Room(rid=rid, number=number, prompt_len=prompt_len, opened=time.monotonic())
            self._rooms[number] = self._by_rid[rid] = room
            for link, message in self._early.pop(number, {}).items():
                self._join(room, link, message)

    def chunk(self, rid: str, chunk: Chunk) -> None:
        """More of a room can be sent."""
        if room := self._by_rid.get(rid):
            room.chunks.append(chunk)
            _queue(room)

    def finish(self, rid: str, first: dict[str, Any] | None) -> None:
        """All of a room can be sent."""
        if room := self._by_rid.get(rid):
            room.finished, room.first = True, first
            _queue(room)

    def drop(self, rid: str, why: str) -> None:
        """Forget a room on this engine's own account, of which it need not be told."""
        if room := self._by_rid.get(rid):
            self._forget(room, why=f"prefill rank {self._tp_rank} gave it up: {why}")

    def obey(self, link: Link, message: Message) -> None:
        """Act on what a decode rank said; raises WireError where it makes no sense."""
        if isinstance(message, Register):
            self._register(link, message)
        elif isinstance(message, Credit):
            _grant(link, message.slot)
        elif isinstance(message, Done):
            self._done(link, message.room)
        elif isinstance(message, Cancel):
            self._cancelled(link, message)
        else:
            raise WireError(f"a decode rank says no {type(message).__name__}")

    def lose(self, link: Link, why: str) -> None:
        """Fail what a link still serves, and forget who registered over it."""
        for room in list(self._rooms.values()):
            pair = room.pairs.get(link.tp_rank)
            if pair is not None and pair.link is link and not pair.done:
                self._fail(room, why)
        for early in self._early.values():
            early.pop(link, None)
        self._early = {number: early for number, early in self._early.items() if early}

    def fail_overdue(self, *, now: float, limit: float) -> None:
        """Fail each room in which something has been awaited in vain for `limit` seconds."""
        for room in list(self._rooms.values()):
            if (why := overdue_room(room, registered=self._registered, now=now, limit=limit)) is not None:
                self._fail(room, why)

    def waiting_blocks(self) -> int:
        """Blocks that could be sent, if there were credit for them."""
        return sum(pair.waiting_blocks() for room in self._rooms.values() for pair in room.pairs.values())

    def _register(self, link: Link, message: Register) -> None:
        self._registered = time.monotonic()
        if (room := self._rooms.get(message.room)) is not None:
            self._join(room, link, message)
        elif (why := self._given_up.get(message.room)) is not None:
            self.outbox.append((link.identity, Cancel(room=message.room, why=why)))
        else:
            self._early.setdefault(message.room, {})[link] = message

    def _join(self, room: Room, link: Link, message: Register) -> None:
        """A decode rank has a place for its part of a room."""
        others = [pair.link for pair in room.pairs.values()]
        if link.tp_rank in room.pairs or any(other.shape != link.shape for other in others):
            why = f"room {room.number} is taken by another decode engine"
            self.outbox.append((link.identity, Cancel(room=room.number, why=why)))
            return
        room.pairs[link.tp_rank] = Pair(room=room, link=link, layout=self._layout, since=time.monotonic())
        if message.prompt_len != room.prompt_len:
            self._fail(
                room,
                f"decode rank {link.tp_rank} expects a prompt of {message.prompt_len} tokens,"
                f" but prefill rank {self._tp_rank} has one of {room.prompt_len}",
            )
        elif room.pairs.keys() == link.destinations:
            room.bound = True
            self.events.append(Bound(room.rid))
            _queue(room)

    def _done(self, link: Link, number: int) -> None:
        link.moved = time.monotonic()
        room = self._rooms.get(number)
        pair = None if room is None else room.pairs.get(link.tp_rank)
        if room is None or pair is None or pair.link is not link:
            return
        if not pair.ended:
            raise WireError(f"room {number} is said to be done, but has not ended")
        pair.done = True
        if room.sent:
            self.events.append(Sent(room.rid))
            self._remove(room)

    def _cancelled(self, link: Link, message: Cancel) -> None:
        why = f"decode rank {link.tp_rank} gave it up: {message.why}"
        if link in self._early.get(message.room, {}):
            del self._early[message.room]
            self._called_off.note(message.room, why)
        elif (room := self._rooms.get(message.room)) is not None:
            pair = room.pairs.get(link.tp_rank)
            if pair is not None and pair.link is link:
                self._fail(room, why)

    def _fail(self, room: Room, why: str) -> None:
        self.events.append(Failed(room.rid, why))
        self._forget(room, why=why)

    def _forget(self, room: Room, *, why: str) -> None:
        self._remove(room)
        self._given_up.note(room.number, why)
        for pair in room.pairs.values():
            self.outbox.append((pair.link.identity, Cancel(room=room.number, why=why)))

    def _remove(self, room: Room) -> None:
        del self._rooms[room.number], self._by_rid[room.rid]
        for pair in room.pairs.values():
            if pair in pair.link.work:
                pair.link.work.remove(pair)


def _queue(room: Room) -> None:
    """Let the pairs of a room take their turn; before it is bound nothing is sent, as it may never be."""
    for pair in room.pairs.values() if room.bound else ():
        if pair not in pair.link.work and not pair.ended:
            pair.since = time.monotonic()
            pair.link.work.append(pair)


def _grant(link: Link, slot: int) -> None:
    if slot in link.free or not 0 <= slot < link.num_slots:
        raise WireError(f"slot {slot} is granted, but was not in use")
    link.free.append(slot)
    link.moved = time.monotonic()


class Reasons:
    """Why each of the last `MAX_ROOMS` rooms was given up, by room number."""

    def __init__(self, max_rooms: int = MAX_ROOMS) -> None:
        self._max_rooms = max_rooms
        self._reasons: dict[int, str] = {}

    def note(self, room: int, why: str) -> None:
        self._reasons.pop(room, None)
        self._reasons[room] = why
        if len(self._reasons) > self._max_rooms:
            del self._reasons[next(iter(self._reasons))]

    def get(self, room: int) -> str | None:
        return self._reasons.get(room)

    def pop(self, room: int) -> str | None:
        return self._reasons.pop(room, None)
