"""What a prefill rank knows of its handovers: rooms, and links to the decode ranks that have come. No sockets here.

A `Room` is one handover, a `Pair` its part for one decode rank, a `Link` the connection over which the pairs of all
rooms with that rank take turns, oldest first. Only rows are kept of what is still to be sent: payload exists for
blocks that have a slot, so a decode rank that grants no credit costs no memory.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from harness.errors import UsageError
from harness.refengine.transfer.handshake import EngineShape
from harness.refengine.transfer.packing import BlockFormat, source_rows, transfer_positions
from harness.refengine.transfer.pairs import block_format, destinations_of
from harness.refengine.transfer.routes import Route
from harness.refengine.transfer.transports import Transport, TransportError, Writer
from harness.refengine.transfer.wire import Hello, Message
from harness.topology import KVLayout

# What a decode rank may ask this rank to have under way at a time, whatever it offers: its slots and their size are
# its own choice, the memory behind a message is not.
_MAX_SLOTS = 64
_MAX_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Positions start..stop-1 are in the pool, in these logical pages of the sequence."""

    start: int
    stop: int
    pages: tuple[int, ...]


@dataclass(slots=True, kw_only=True, eq=False)
class Room:
    """One handover. `pairs` by decode TP rank; complete once `bound`."""

    rid: str
    number: int
    prompt_len: int
    opened: float
    pairs: dict[int, Pair] = field(default_factory=dict)
    chunks: list[Chunk] = field(default_factory=list)
    bound: bool = False
    finished: bool = False
    first: dict[str, Any] | None = None

    @property
    def sent(self) -> bool:
        """Whether every decode rank has confirmed all."""
        return self.bound and all(pair.done for pair in self.pairs.values())


@dataclass(slots=True, kw_only=True, eq=False)
class Link:
    """A decode rank that said Hello over connection `fd`; `free` are the slots that it granted.

    `work` holds the pairs that have something to send. `leaving` is what was decided to send, in order, each with
    the slot that must be written before, and the payload that goes with it. `moved` is when it last took something.
    """

    identity: bytes
    fd: int
    tp_rank: int
    shape: EngineShape
    route: Route | None
    destinations: frozenset[int]
    writer: Writer
    form: BlockFormat | None
    moved: float
    free: deque[int] = field(init=False)
    work: deque[Pair] = field(default_factory=deque)
    leaving: deque[tuple[Message, int | None, bytes | None]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.free = deque(range(self.num_slots))

    @property
    def block_rows(self) -> int:
        """The most rows that a block to this rank holds."""
        if self.form is None:
            return 1
        return max(1, min(self.writer.sizes.slot_bytes, _MAX_BLOCK_BYTES) // self.form.row_bytes)

    @property
    def num_slots(self) -> int:
        """How many of the offered slots are used."""
        return min(self.writer.sizes.slots, _MAX_SLOTS)


@dataclass(slots=True, kw_only=True, eq=False)
class Pair:
    """One decode rank's part of a room. `since` is when it was last given something to send or awaited."""

    room: Room
    link: Link
    layout: KVLayout
    since: float
    rest: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    num_chunks: int = 0
    rows_sent: int = 0
    ended: bool = False
    done: bool = False

    def has_rows(self) -> bool:
        """Whether something is left of the chunks told so far."""
        while not len(self.rest) and self.num_chunks < len(self.room.chunks):
            self.rest = self._rows(self.room.chunks[self.num_chunks])
            self.num_chunks += 1
        return len(self.rest) > 0

    def take_rows(self) -> Tensor:
        """Rows [n] of the pool for the next block."""
        rows, self.rest = self.rest.split(
            [n := min(self.link.block_rows, len(self.rest)), len(self.rest) - n]
        )
        self.rows_sent += n
        return rows

    def waiting_blocks(self) -> int:
        """How many blocks the chunks told so far will still make."""
        left = [self.rest, *(self._rows(chunk) for chunk in self.room.chunks[self.num_chunks :])]
        return sum(-(-len(rows) // self.link.block_rows) for rows in left)

    def _rows(self, chunk: Chunk) -> Tensor:
        route = self.link.route
        if route is None:
            return torch.empty(0, dtype=torch.int64)
        positions = transfer_positions(
            self.layout,
            self.link.shape.layout(),
            start=chunk.start,
            stop=chunk.stop,
            source_dcp_rank=route.source_dcp_rank,
            destination_dcp_rank=route.destination_dcp_rank,
        )
        return source_rows(self.layout, chunk.pages, positions)


def admit(
    hello: Hello,
    *,
    identity: bytes,
    fd: int,
    nonce: str,
    shape: EngineShape,
    tp_rank: int,
    dtype: torch.dtype,
    transport: Transport,
    now: float,
) -> Link:
    """The link that a decode rank asks for; raises UsageError or TransportError saying why it cannot be had."""
    if hello.nonce != nonce:
        raise UsageError(
            f"this is engine {nonce}, not {hello.nonce}; ask its HTTP port for /disaggregation again"
        )
    decode = EngineShape.from_dict(hello.shape)
    destinations = destinations_of(shape, decode, tp_rank)
    if hello.tp_rank not in destinations:
        raise UsageError(
            f"prefill rank {tp_rank} sends to decode ranks {sorted(destinations)}, not to {hello.tp_rank}"
        )
    route = destinations[hello.tp_rank]
    form = None if route is None else block_format(shape, route, dtype)
    writer = transport.writer(hello.offer)
    if form is not None and writer.sizes.slot_bytes < form.row_bytes:
        writer.close()
        raise TransportError(f"slots of {writer.sizes.slot_bytes} B hold no row of {form.row_bytes} B")
    return Link(
        identity=identity,
        fd=fd,
        tp_rank=hello.tp_rank,
        shape=decode,
        route=route,
        destinations=frozenset(destinations),
        writer=writer,
        form=form,
        moved=now,
    )
