"""Two engines' pools and what moves KV between them, without models, schedulers or fronts: for tests.

Where a token belongs is dealt out one by one here (`places`), not computed as the engine does.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
import zmq
from pd_pairs import shape_of
from torch import Tensor

from harness.refengine.config import DisaggregationMode, EngineConfig, TransferBackend
from harness.refengine.kv_pool import KVPool
from harness.refengine.transfer.events import Arrived, HandoverEvent, PeerInfo
from harness.refengine.transfer.handshake import EngineShape
from harness.refengine.transfer.packing import pack_rows
from harness.refengine.transfer.receiver import KVReceiver
from harness.refengine.transfer.sender import KVSender
from harness.refengine.transfer.transports.modules import nixl_module
from harness.refengine.transfer.wire import Block, Hello, Message, Register, decode, encode

needs_nixl = pytest.mark.skipif(
    nixl_module() is None, reason="needs the package nixl: pip install 'harness[nixl]'"
)
TRANSPORTS = [
    TransferBackend.SHM,
    TransferBackend.TCP,
    pytest.param(TransferBackend.NIXL, marks=needs_nixl),
]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
POISON = 1e4
# Far longer than anything here takes on a busy machine: only a handover that hangs meets it.
PATIENCE_S = 60.0
LOOK_S = 0.001
# What an engine tells of an answer's first token.
FIRST: dict[str, Any] = {"token": 7, "logprob": -0.5, "top": []}
# Of the prompt of a prefill rank in the hand of a test, in its page 1.
RAW_LENGTH = 8
# One row of the smallest pair's model, as it travels.
ROW_BYTES = 16 + 512


def places(shape: EngineShape, dcp_rank: int, pages: Sequence[int], length: int) -> dict[int, int]:
    """Row of each position that a DCP rank owns: tokens are dealt in turns, a page at a time."""
    wide = shape.page_size * shape.dcp_size
    rows, dealt = {}, [0] * shape.dcp_size
    for position in range(length):
        if position % wide == 0:
            dealt = [0] * shape.dcp_size
        owner = (position % wide) // shape.interleave % shape.dcp_size
        if owner == dcp_rank:
            rows[position] = pages[position // wide] * shape.page_size + dealt[owner]
        dealt[owner] += 1
    return rows


@dataclass(frozen=True)
class Prompt:
    """What a prompt's KV is, whoever holds it: `kv` [layers, length, 2, all KV heads, head_dim]."""

    length: int
    kv: Tensor
    tokens: list[int]

    @classmethod
    def draw(cls, shape: EngineShape, length: int, seed: int) -> Prompt:
        random = torch.Generator().manual_seed(seed)
        sizes = (shape.num_layers, length, 2, shape.num_kv_heads, shape.head_dim)
        kv = torch.randn(sizes, generator=random).to(DTYPES[shape.dtype])
        return cls(length, kv, torch.randint(0, 256, (length,), generator=random).tolist())


@dataclass
class Rank:
    """A pool, what was told about it, and the sender or receiver on it."""

    config: EngineConfig
    tp_rank: int
    num_pages: int
    shape: EngineShape = field(init=False)
    pool: KVPool = field(init=False)
    # Anything to put events into.
    told: Any = field(default_factory=queue.Queue)

    def __post_init__(self) -> None:
        self.shape = shape_of(self.config)
        self.pool = KVPool(
            layout=self.shape.layout(),
            rows=self.num_pages * self.shape.page_size,
            num_layers=self.shape.num_layers,
            kv_heads=len(self.heads),
            head_dim=self.shape.head_dim,
            dtype=DTYPES[self.shape.dtype],
            poison=POISON,
        )

    @property
    def heads(self) -> range:
        return self.shape.kv_heads(self.tp_rank)

    @property
    def dcp_rank(self) -> int:
        return self.tp_rank % self.shape.dcp_size

    def parts(self) -> dict[str, Any]:
        """What sender and receiver are made of alike."""
        return {
            "config": self.config,
            "shape": self.shape,
            "tp_rank": self.tp_rank,
            "pool": self.pool,
            "layout": self.shape.layout(),
            "tell": self.told.put,
        }

    def hears(self) -> HandoverEvent:
        event: HandoverEvent = self.told.get(timeout=PATIENCE_S)
        return event

    def free(self, pages: Sequence[int]) -> None:
        self.pool.free_pages(pages)

    def fill(self, prompt: Prompt, pages: Sequence[int], *, index: int = 0, start: int = 0) -> None:
        """Put what this rank owns of `prompt` from `start` on where an engine would."""
        for position, row in places(self.shape, self.dcp_rank, pages, prompt.length).items():
            if position >= start:
                self.pool.kv[:, row] = prompt.kv[:, position][:, :, self.heads.start : self.heads.stop]
                self.pool.tags[row] = torch.tensor([index, position, prompt.tokens[position]])

    def assert_holds(self, held: Sequence[tuple[Prompt, Sequence[int], int]]) -> None:
        """This rank holds exactly its own of these (prompt, pages, index), and poison everywhere else."""
        expected = []
        for prompt, pages, index in held:
            for position, row in places(self.shape, self.dcp_rank, pages, prompt.length).items():
                expected.append([row, index, position, prompt.tokens[position]])
                right = prompt.kv[:, position][:, :, self.heads.start : self.heads.stop]
                assert torch.equal(self.pool.kv[:, row], right), f"position {position} in row {row}"
        assert self.pool.held_rows() == sorted(expected)
        assert self.pool.check_poison()


@dataclass
class PrefillRank(Rank):
    sender: KVSender = field(init=False)

    def start(self) -> PrefillRank:
        self.sender = KVSender(**self.parts())
        return self


@dataclass
class DecodeRank(Rank):
    receiver: KVReceiver = field(init=False)

    def start(self, **sizes: int) -> DecodeRank:
        self.receiver = KVReceiver(**{**self.parts(), **sizes})
        return self


class World(ExitStack):
    """All ranks of both engines in one process, each with its thread; closed at the end of a `with`."""

    def __init__(
        self,
        prefill: EngineConfig,
        decode: EngineConfig,
        *,
        num_pages: int = 12,
        slots: int = 4,
        slot_bytes: int = 256 << 10,
    ) -> None:
        super().__init__()
        prefill = replace(prefill, nonce="launched")
        with ExitStack() as made:
            self.prefill = [PrefillRank(prefill, rank, num_pages).start() for rank in range(prefill.tp)]
            self.decode = [
                DecodeRank(decode, rank, num_pages).start(slots=slots, slot_bytes=slot_bytes)
                for rank in range(decode.tp)
            ]
            for prefill_rank in self.prefill:
                made.callback(prefill_rank.sender.close)
            for decode_rank in self.decode:
                made.callback(decode_rank.receiver.close)
            self.push(made.pop_all())

    @property
    def ranks(self) -> list[Rank]:
        return [*self.prefill, *self.decode]

    @property
    def peer(self) -> PeerInfo:
        return PeerInfo(
            host="127.0.0.1",
            shape=self.prefill[0].shape,
            ports=tuple(rank.sender.port for rank in self.prefill),
            nonce="launched",
        )

    def prompt(self, length: int, seed: int = 0) -> Prompt:
        return Prompt.draw(self.prefill[0].shape, length, seed)

    def open(self, rid: str, *, room: int, prompt: Prompt) -> None:
        for rank in self.prefill:
            rank.sender.open(rid, room=room, prompt_len=prompt.length)

    def expect(self, rid: str, *, room: int, prompt: Prompt, pages: Sequence[int], index: int = 0) -> None:
        for rank in self.decode:
            rank.receiver.expect(
                rid, room=room, index=index, prompt_len=prompt.length, pages=tuple(pages), peer=self.peer
            )

    def send(
        self,
        rid: str,
        prompt: Prompt,
        pages: Sequence[int],
        *,
        chunk: int,
        first: dict[str, Any] = FIRST,
    ) -> None:
        """Compute and send a prompt as an engine does, chunk by chunk."""
        for rank in self.prefill:
            rank.fill(prompt, pages)
        for start in range(0, prompt.length, chunk):
            for rank in self.prefill:
                stop = min(start + chunk, prompt.length)
                rank.sender.chunk(rid, start=start, stop=stop, pages=tuple(pages))
        for rank in self.prefill:
            rank.sender.finish(rid, first=first)


def small(**changes: Any) -> tuple[EngineConfig, EngineConfig]:
    """The smallest pair of engines that speak with each other: one rank each."""
    common = {"disaggregation_transfer_backend": TransferBackend.TCP, **changes}
    return (
        EngineConfig(disaggregation_mode=DisaggregationMode.PREFILL, **common),
        EngineConfig(disaggregation_mode=DisaggregationMode.DECODE, **common),
    )


def arrived(rid: str, first: dict[str, Any] = FIRST) -> Arrived:
    """What decode rank 0 tells of a handover that has gone well."""
    return Arrived(rid, first)


def await_that(condition: Callable[[], bool], rank: Rank) -> None:
    """Until what another thread does can be seen, where nothing tells of it."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"never came about; {rank.told.queue}"
        time.sleep(LOOK_S)


class RawDecodeRank:
    """A decode rank of which the test says every word, over TCP: for what a healthy one never does."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], peer: PeerInfo, shape: EngineShape, source: int = 0
    ):
        self.peer = peer
        self.shape = shape
        self.socket = context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.rcvtimeo = round(PATIENCE_S * 1000)
        self.socket.connect(f"tcp://127.0.0.1:{peer.ports[source]}")

    def say(self, *messages: Message) -> None:
        for message in messages:
            self.socket.send(encode(message))

    def greet(self, *, slots: int = 4, slot_bytes: int = 1 << 16, tp_rank: int = 0, **changes: Any) -> None:
        hello = {"nonce": self.peer.nonce, "tp_rank": tp_rank, "shape": self.shape.to_dict()}
        offer = {"slots": slots, "slot_bytes": slot_bytes}
        self.say(Hello(**{**hello, "offer": offer, **changes}))

    def hears(self) -> Message:
        return decode(self.socket.recv_multipart()[0])

    def silent(self) -> bool:
        """Whether nothing has come; what comes is only sure to be there after something else was awaited."""
        return not self.socket.poll(0)


def few_slots() -> World:
    """The smallest pair, with credit for two blocks of four rows."""
    return World(*small(), slots=2, slot_bytes=4 * ROW_BYTES)


@contextmanager
def raw_decode_rank() -> Iterator[tuple[PrefillRank, RawDecodeRank]]:
    """A prefill rank, and a decode rank in the hand of the test."""
    with World(*small()) as world, zmq.Context() as context:
        rank = RawDecodeRank(context, world.peer, world.decode[0].shape)
        try:
            yield world.prefill[0], rank
        finally:
            rank.socket.close()


class RawPrefillRank:
    """A ROUTER that says what the test says, with a pool to take rows from."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        prefill, decode_config = small()
        self.rank = PrefillRank(prefill, 0, 4)
        self.prompt = Prompt.draw(self.rank.shape, RAW_LENGTH, 0)
        self.rank.fill(self.prompt, (1,))
        self.router = context.socket(zmq.ROUTER)
        self.router.linger = 0
        self.router.rcvtimeo = round(PATIENCE_S * 1000)
        self.port = self.router.bind_to_random_port("tcp://127.0.0.1")
        self.identity = b""
        self.decode = DecodeRank(decode_config, 0, 4).start()

    def expect(self, rid: str = "r", room: int = 1) -> None:
        peer = PeerInfo(host="127.0.0.1", shape=self.rank.shape, ports=(self.port,), nonce="launched")
        self.decode.receiver.expect(rid, room=room, index=5, prompt_len=RAW_LENGTH, pages=(2,), peer=peer)
        while self.hears() != Register(room=room, prompt_len=RAW_LENGTH):
            pass

    def hears(self) -> Message:
        self.identity, frame = self.router.recv_multipart()
        return decode(frame)

    def say(self, message: Message, *payload: bytes) -> None:
        self.router.send_multipart([self.identity, encode(message), *payload])

    def block(self, start: int, stop: int, *, room: int = 1, slot: int = 0) -> tuple[Block, bytes]:
        rows = torch.arange(16 + start, 16 + stop)
        data = pack_rows(self.rank.pool, rows, self.rank.heads).to_bytes()
        return Block(room=room, slot=slot, rows=stop - start, size=len(data)), data


@contextmanager
def raw_prefill_rank() -> Iterator[RawPrefillRank]:
    """A decode rank, and a prefill rank in the hand of the test."""
    with zmq.Context() as context:
        raw = RawPrefillRank(context)
        try:
            yield raw
        finally:
            raw.decode.receiver.close()
            raw.router.close()
