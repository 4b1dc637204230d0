"""The shared-memory backend: ranks of one host write into slots of an anonymous file and meet at a futex.

Phases: whoever starts the ranks creates a region per group (`ShmPlumbing.create`), ranks inherit the file
descriptors by fork or by `pass_fds`, each maps its regions (`connect`). A collective is one round for each
piece of at most a slot: write into the own slot, meet, read from the others only what is for oneself.
Two buffers take turns: whoever writes into one again has met all others since they read it.
Nothing has a name, so nothing is left behind however the ranks end.
Failure rule: before it reads, each rank compares what all say they are doing, and raises `CommError` where
they are not in the same verb with the same number of bytes, the same dim and the same source.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from harness.errors import UsageError
from harness.refengine.comm.base import Call, CommError, Comms, Communicator, Verb, sum_in_rank_order
from harness.refengine.comm.futex import COUNTERS_BYTES, MeetingPoint, require_futex
from harness.refengine.config import EngineConfig
from harness.topology import dcp_groups

# Every message of a decode step and of a 256-token chunk fits; memory is used only as far as messages reach.
SLOT_BYTES = 1 << 20

_PAGE = 4096
_NUM_BUFFERS = 2
# What a rank is doing: two int64, the call (its verb, and above it the dim or source) and the number of bytes.
_CALL_BYTES = 16

_VERBS = tuple(Verb)
# `broadcast_bytes` must not be mistaken for `broadcast`: its receivers do not know the length.
_BYTES = len(_VERBS)
_NUM_KINDS = _BYTES + 1
_UNKNOWN = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ShmRegion:
    """The shared file of one group: counters and calls in front, then the slots [buffer, rank, bytes]."""

    fd: int
    size: int
    slot_bytes: int

    @classmethod
    def create(cls, *, name: str, size: int, slot_bytes: int) -> Self:
        """A region of zeros; `name` is seen only in `/proc/PID/maps`."""
        if slot_bytes % _PAGE:
            raise UsageError(f"a slot of {slot_bytes} bytes is not a whole number of pages of {_PAGE} bytes")
        region = cls(fd=os.memfd_create(f"harness-{name}"), size=size, slot_bytes=slot_bytes)
        os.ftruncate(region.fd, region.header_bytes + _NUM_BUFFERS * size * slot_bytes)
        return region

    @classmethod
    def adopt(cls, *, fd: int, size: int) -> Self:
        """The region behind an inherited descriptor; the file's length tells the slot size."""
        header = cls(fd=fd, size=size, slot_bytes=0).header_bytes
        return cls(fd=fd, size=size, slot_bytes=(os.fstat(fd).st_size - header) // (_NUM_BUFFERS * size))

    @property
    def header_bytes(self) -> int:
        used = COUNTERS_BYTES + _NUM_BUFFERS * self.size * _CALL_BYTES
        return -(-used // _PAGE) * _PAGE

    def map(self) -> mmap.mmap:
        """Map all of it, shared; lasts until the last reference is gone, even when `fd` is closed."""
        return mmap.mmap(self.fd, 0)


class ShmCommunicator(Communicator):
    """A rank's end of a group in one region."""

    def __init__(self, region: ShmRegion, *, name: str, rank: int) -> None:
        super().__init__(name=name, rank=rank, size=region.size)
        self._region = region
        self._memory = region.map()
        with torch.inference_mode(False):
            slots = torch.frombuffer(self._memory, dtype=torch.uint8, offset=region.header_bytes)
            self._slots = slots.view(_NUM_BUFFERS, region.size, region.slot_bytes)
        calls = memoryview(self._memory)[COUNTERS_BYTES : region.header_bytes].cast("q")
        width = region.size * _CALL_BYTES // calls.itemsize
        self._calls = [calls[i * width : (i + 1) * width] for i in range(_NUM_BUFFERS)]
        self._typed: dict[torch.dtype, tuple[Tensor, ...]] = {}
        self._meeting = MeetingPoint(self._memory, size=region.size, rank=rank)
        self._buffer = 0

    def _gather(self, call: Call, x: Tensor) -> Tensor:
        mine = x.view(-1)
        out = x.new_empty((self.size, mine.numel()))
        for piece, slots in self._pieces(mine.numel(), x.dtype):
            slots[self.rank].copy_(mine[piece])
            self._meet(call, x.nbytes)
            out[:, piece].copy_(slots)
        return out.view(self.size, *x.shape)

    def _sum(self, x: Tensor) -> Tensor:
        mine = x.view(-1)
        out = torch.empty_like(mine)
        for piece, slots in self._pieces(mine.numel(), x.dtype):
            slots[self.rank].copy_(mine[piece])
            self._meet(Call(Verb.ALL_REDUCE), x.nbytes)
            out[piece].copy_(sum_in_rank_order(slots))
        return out.view(x.shape)

    def _transpose(self, call: Call, x: Tensor) -> Tensor:
        out = torch.empty_like(x).view(self.size, -1)
        for piece, received in self._pieces_for_me(call, x):
            out[:, piece].copy_(received)
        return out.view(x.shape)

    def _sum_of_parts(self, call: Call, parts: Tensor) -> Tensor:
        out = torch.empty_like(parts[0])
        flat = out.view(-1)
        for piece, received in self._pieces_for_me(call, parts):
            flat[piece].copy_(sum_in_rank_order(received))
        return out

    def _broadcast(self, x: Tensor, *, src: int) -> Tensor:
        out = x.clone()
        flat = out.view(-1)
        for piece, slots in self._pieces(flat.numel(), x.dtype):
            if self.rank == src:
                slots[src].copy_(flat[piece])
            self._meet(Call(Verb.BROADCAST, src), x.nbytes)
            if self.rank != src:
                flat[piece].copy_(slots[src])
        return out

    def _broadcast_bytes(self, data: bytes | None, *, src: int) -> bytes:
        received = bytearray()
        total = _UNKNOWN if data is None else len(data)
        while True:
            place = self._region.header_bytes + (self._buffer * self.size + src) * self._region.slot_bytes
            if data is not None:
                piece = data[len(received) : len(received) + self._region.slot_bytes]
                self._memory[place : place + len(piece)] = piece
            total = self._meet_unsized(total, src=src)
            end = place + min(self._region.slot_bytes, total - len(received))
            received += self._memory[place:end]
            if len(received) == total:
                return bytes(received)

    def _barrier(self) -> None:
        self._meet(Call(Verb.BARRIER), 0)

    def _pieces(self, length: int, dtype: torch.dtype, *, rows: int = 1) -> Iterator[tuple[slice, Tensor]]:
        """Cut `length` elements so that a slot holds `rows` pieces: (piece, slots [rank, rows * piece])."""
        slots = self._slots_as(dtype)
        step = slots[0].shape[1] // rows
        for start in range(0, length, step):
            stop = min(start + step, length)
            yield slice(start, stop), slots[self._buffer].narrow(1, 0, rows * (stop - start))

    def _pieces_for_me(self, call: Call, x: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Write [to, ...] and meet; yields what is for this rank, in pieces: (piece, [from, elements])."""
        mine = x.view(self.size, -1)
        for piece, slots in self._pieces(mine.shape[1], x.dtype, rows=self.size):
            parts = slots.view(self.size, self.size, -1)  # [from, to, elements]
            parts[self.rank].copy_(mine[:, piece])
            self._meet(call, x.nbytes)
            yield piece, parts[:, self.rank]

    def _slots_as(self, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """For each buffer its slots [rank, elements]; kept, since a small message costs less than a view."""
        if dtype not in self._typed:
            # A view that is made under inference mode could never be written to outside it.
            with torch.inference_mode(False):
                self._typed[dtype] = self._slots.view(dtype).unbind(0)
        return self._typed[dtype]

    def _meet(self, call: Call, nbytes: int) -> None:
        """Say what this rank does, wait for all, and see that they do the same."""
        mine = [_VERBS.index(call.verb) + _NUM_KINDS * call.along, nbytes]
        said = self._say(mine)
        if said != mine * self.size:
            self._refuse(said)

    def _meet_unsized(self, total: int, *, src: int) -> int:
        """As `_meet` for a message whose length only `src` knows; returns it."""
        kind = _BYTES + _NUM_KINDS * src
        said = self._say([kind, total])
        if said[::2] != [kind] * self.size:
            self._refuse(said)
        return said[2 * src + 1]

    def _say(self, mine: list[int]) -> list[int]:
        calls = self._calls[self._buffer]
        calls[2 * self.rank], calls[2 * self.rank + 1] = mine
        self._buffer = (self._buffer + 1) % _NUM_BUFFERS
        self._meeting.meet()
        return calls.tolist()

    def _refuse(self, said: list[int]) -> None:
        differ = len({kind // _NUM_KINDS for kind in said[::2]}) > 1
        calls = [
            f"rank {rank} in {_words(kind, nbytes, detailed=differ)}"
            for rank, (kind, nbytes) in enumerate(zip(said[::2], said[1::2], strict=True))
        ]
        raise CommError(f"ranks of {self.name} disagree: {', '.join(calls)}")


def _words(kind: int, nbytes: int, *, detailed: bool) -> str:
    """A call as it was said: `all_gather of 8 bytes`, and along which dim or from whom where that differs."""
    along, number = divmod(kind, _NUM_KINDS)
    call = Call(Verb.BROADCAST if number == _BYTES else _VERBS[number], along)
    name = "broadcast_bytes" if number == _BYTES else call.verb
    length = "unknown length" if nbytes == _UNKNOWN else f"{nbytes} bytes"
    return f"{name} of {length}{call.detail() if detailed else ''}"


class ShmPlumbing:
    """The regions of a whole topology: that of the TP group first, then one for each DCP group."""

    def __init__(self, config: EngineConfig, regions: list[ShmRegion]) -> None:
        self._groups = dcp_groups(config.parallel())
        self._tp, *self._dcp = regions

    @classmethod
    def create(cls, config: EngineConfig, *, slot_bytes: int = SLOT_BYTES) -> Self:
        """Make the regions; call it once, before any rank starts. Raises UsageError off Linux x86-64."""
        require_futex()
        sizes = _group_sizes(config)
        return cls(
            config,
            [ShmRegion.create(name=name, size=size, slot_bytes=slot_bytes) for name, size in sizes],
        )

    @classmethod
    def adopt(cls, config: EngineConfig, fds: tuple[int, ...]) -> Self:
        """The plumbing of a parent that passed its `fds` on, in the same order."""
        sizes = _group_sizes(config)
        return cls(
            config, [ShmRegion.adopt(fd=fd, size=size) for fd, (_, size) in zip(fds, sizes, strict=True)]
        )

    @property
    def fds(self) -> tuple[int, ...]:
        """Descriptors that a spawned rank must inherit; a forked one has them anyway."""
        return (self._tp.fd, *(region.fd for region in self._dcp))

    def connect(self, rank: int) -> Comms:
        """Both communicators of TP rank `rank`; call it in the rank's own process."""
        index = next(i for i, group in enumerate(self._groups) if rank in group)
        dcp_rank = self._groups[index].index(rank)
        return Comms(
            tp=ShmCommunicator(self._tp, name="tp", rank=rank),
            dcp=ShmCommunicator(self._dcp[index], name="dcp", rank=dcp_rank),
        )

    def close(self) -> None:
        """Close the descriptors in this process; connected communicators stay usable."""
        for fd in self.fds:
            os.close(fd)


def _group_sizes(config: EngineConfig) -> list[tuple[str, int]]:
    groups = dcp_groups(config.parallel())
    return [("tp", config.tp), *((f"dcp{index}", len(group)) for index, group in enumerate(groups))]
