"""Engines of a pair that compute nothing: they meet in rooms as real ones do, and fail when a test tells them to.

All of a test's engines live in one event loop in a thread of its own, behind real sockets: a connection that breaks
is a connection that breaks. HTTP is written out by hand, since no server library lets one die in mid-answer.
"""

from __future__ import annotations

import asyncio
import json
import queue
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from harness.refengine.config import DisaggregationMode, TransferBackend
from harness.refengine.transfer.handshake import EngineShape
from harness.topology import Side

# No test should hang for good; far above what any step takes, also on a busy machine.
PATIENCE_S = 30
EVENTS = 3
# Longer than the router waits before another attempt.
LATER_S = 0.5


def shape_of(side: Side, **changes: Any) -> EngineShape:
    """Prefill tp 2, decode tp 4 dcp 4, as far as `changes` does not say otherwise."""
    sizes = {"tp_size": 2, "dcp_size": 1} if side is Side.PREFILL else {"tp_size": 4, "dcp_size": 4}
    return replace(
        EngineShape(
            mode=DisaggregationMode(side.value),
            transport=TransferBackend.TCP,
            model="builtin:random-gqa",
            model_sha256=None,
            seed=0,
            dtype="fp32",
            num_layers=2,
            num_kv_heads=2,
            head_dim=16,
            page_size=16,
            interleave=1,
            **sizes,
        ),
        **changes,
    )


@dataclass
class Room:
    """Where the two sides of one prompt meet."""

    registered: asyncio.Event = field(default_factory=asyncio.Event)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    aborted: asyncio.Event = field(default_factory=asyncio.Event)


class Call:
    """One HTTP call: its body, and the words for its end."""

    def __init__(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> None:
        self.path = path
        self.body = body
        self.headers = headers

    @property
    def rooms(self) -> list[int]:
        given = self.body["bootstrap_room"]
        return given if isinstance(given, list) else [given]

    @property
    def rids(self) -> list[str]:
        rid = self.body.get("rid")
        return rid if isinstance(rid, list) else [rid] if rid else []


class FakeEngine:
    """One engine. A test sets the knobs; `calls` and `closed` tell what came and whose client left."""

    def __init__(self, side: Side, hall: Hall, nonce: str) -> None:
        self.side = side
        self.hall = hall
        self.nonce = nonce
        self.shape = shape_of(side)
        self.port = 0
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self.reset()

    def reset(self) -> None:
        """As before a test: nothing has come, nothing fails."""
        self._in_flight: dict[str, asyncio.Event] = {}
        # The next generating calls are answered with these.
        self.refusals: list[tuple[int, str]] = []
        # Cleared to hold these back.
        self.judges = asyncio.Event()
        self.judges.set()
        self.hangs = False
        # Cleared, calls have come but are not known by their rids yet: the front asks for its prefill engine.
        self.reads = asyncio.Event()
        self.reads.set()
        # Cleared, nothing that is in flight ends, aborted or not: a rank that is stopped.
        self.steps = asyncio.Event()
        self.steps.set()
        # Seconds until the other side is complained of.
        self.patience: float | None = None
        # As if somebody aborted every request that comes.
        self.aborts_itself = False
        # Seconds from an abort to its answer.
        self.tarries = 0.0
        # Cleared, nothing is answered until it is set again: a process that is stopped.
        self.runs = asyncio.Event()
        self.runs.set()
        # After so many events of a stream: the connection breaks, the stream just ends, an error is told.
        self.breaks_at: int | None = None
        self.ends_at: int | None = None
        self.errs_at: int | None = None
        # Cleared to hold a stream back after its first event.
        self.flows = asyncio.Event()
        self.flows.set()
        # Cleared to hold a plain answer back.
        self.answers = asyncio.Event()
        self.answers.set()
        self.calls: queue.Queue[Call] = queue.Queue()
        self.answered: queue.Queue[Call] = queue.Queue()
        self.closed: queue.Queue[Call] = queue.Queue()
        self.aborted: queue.Queue[dict[str, Any]] = queue.Queue()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=1 << 26)
        self.port = self._server.sockets[0].getsockname()[1]

    async def die(self) -> None:
        """As a killed process: nobody listens, and every open connection breaks."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                call = await _read_call(reader)
                await self._run(call, reader, writer)
                await writer.drain()
        finally:
            self._open.discard(writer)
            writer.close()

    async def _run(self, call: Call, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer `call`, unless its client leaves first."""
        work = asyncio.ensure_future(self._answer(call, writer))
        left = asyncio.ensure_future(reader.read())
        await asyncio.wait({work, left}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            left.cancel()
            work.result()
            return self.answered.put(call)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        return self.closed.put(call)

    async def _answer(self, call: Call, writer: asyncio.StreamWriter) -> None:
        await self.runs.wait()
        match call.path:
            case "/disaggregation" if self.shape is not None:
                told = {"shape": self.shape.to_dict(), "ports": [1, 2], "nonce": self.nonce}
                _write(writer, 200, told)
            case "/server_info":
                _write(writer, 200, {"schema": 1, "nonce": self.nonce, "running": 0})
            case "/generate" | "/v1/completions" | "/v1/chat/completions":
                await self._generate(call, writer)
            case "/abort_request":
                self.aborted.put(call.body)
                for rid, abort in self._in_flight.items():
                    named = call.body.get("rid", "")
                    if call.body.get("abort_all") or rid == named or re.fullmatch(f"{named}_[0-9]+", rid):
                        abort.set()
                _write(writer, 200, {})
            case "/metrics":
                _write(writer, 200, f"# {self.nonce}\n")
            case "/flush_cache" if self._in_flight:
                _write(writer, 400, "Not flushed\n")
            case "/health" | "/flush_cache" | "/kv_rows" | "/v1/models":
                _write(writer, 200, {"nonce": self.nonce})
            case _:
                _write(writer, 404, {"error": {"message": "Not Found"}})

    async def _generate(self, call: Call, writer: asyncio.StreamWriter) -> None:
        self.calls.put(call)
        if self.refusals:
            status, words = self.refusals.pop(0)
            await self.judges.wait()
            return _write(writer, status, {"error": {"message": words, "code": status}})
        if self.hangs:
            await asyncio.Event().wait()
        await self.reads.wait()
        if taken := [rid for rid in call.rids if rid in self._in_flight]:
            return _write(writer, 400, {"error": {"message": f"rid {taken[0]!r} is in flight already"}})
        abort = asyncio.Event()
        if self.aborts_itself:
            abort.set()
        self._in_flight |= dict.fromkeys(call.rids, abort)
        try:
            await self.steps.wait()
            complaint = await self._meet(call, abort)
        except asyncio.CancelledError:
            self.hall.later(_forget_later(call, self._in_flight, self.steps))
            raise
        _forget(call, self._in_flight)
        if complaint:
            return _write(writer, 502, {"error": {"message": complaint, "code": 502}})
        if abort.is_set():
            await asyncio.sleep(self.tarries)
            return self._write_aborted(call, writer)
        if self.side is Side.DECODE and call.body.get("stream"):
            return await self._stream(writer)
        await self.answers.wait()
        return self._write_answers(call, writer, finish="length")

    def _write_answers(self, call: Call, writer: asyncio.StreamWriter, *, finish: str) -> None:
        meta = {"finish_reason": {"type": finish}}
        answers = [{"text": self.nonce, "room": room, "meta_info": meta} for room in call.rooms]
        _write(writer, 200, answers if isinstance(call.body["bootstrap_room"], list) else answers[0])

    def _write_aborted(self, call: Call, writer: asyncio.StreamWriter) -> None:
        if not call.body.get("stream"):
            return self._write_answers(call, writer, finish="abort")
        _write_head(writer)
        _write_chunk(writer, b'data: {"meta_info": {"finish_reason": {"type": "abort"}}}\n\n')
        _write_chunk(writer, b"data: [DONE]\n\n")
        return writer.write(b"0\r\n\r\n")

    async def _meet(self, call: Call, abort: asyncio.Event) -> str:
        """Prefill waits for its decode side to register, decode for the prompt to arrive; an abort of this side ends
        that, and one of the other is what is complained of."""
        aborting = asyncio.ensure_future(abort.wait())
        try:
            for number in call.rooms:
                room = self.hall.rooms[number]
                mine, other = (
                    (room.arrived, room.registered)
                    if self.side is Side.PREFILL
                    else (room.registered, room.arrived)
                )
                if self.side is Side.DECODE:
                    mine.set()
                waits = {asyncio.ensure_future(event.wait()) for event in (other, room.aborted)}
                done, _ = await asyncio.wait(
                    {*waits, aborting}, return_when=asyncio.FIRST_COMPLETED, timeout=self.patience
                )
                for waiting in waits:
                    waiting.cancel()
                if abort.is_set():
                    room.aborted.set()
                elif room.aborted.is_set():
                    return "the other side gave it up: it was aborted by /abort_request"
                elif not done:
                    return "no progress from rank 1 of the other side"
                elif self.side is Side.PREFILL:
                    mine.set()
            return ""
        finally:
            aborting.cancel()

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        _write_head(writer)
        for number in range(EVENTS):
            if number == self.breaks_at:
                await writer.drain()
                return writer.transport.abort()
            if number == self.ends_at:
                return writer.write(b"0\r\n\r\n")
            if number == self.errs_at:
                _write_chunk(writer, b'data: {"error": {"message": "rank 3 died", "code": 502}}\n\n')
                return writer.write(b"0\r\n\r\n")
            # In two pieces, as a network may deliver it.
            event = b'data: {"number": %d, "by": "%s"}\n\n' % (number, self.nonce.encode())
            _write_chunk(writer, event[:9])
            _write_chunk(writer, event[9:])
            await writer.drain()
            await self.flows.wait()
        _write_chunk(writer, b"data: [DONE]\n\n")
        return writer.write(b"0\r\n\r\n")


class Hall:
    """The engines of one test, and the loop they live in. Use from the test's own thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.rooms: dict[int, Room] = defaultdict(Room)
        self.engines: list[FakeEngine] = []
        self._later: set[asyncio.Task[None]] = set()

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Go on with it by itself; from the engines' own thread."""
        task = asyncio.ensure_future(work)
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    def engine(self, side: Side, **shape: Any) -> FakeEngine:
        """A running engine; `nonce` is its side and number."""

        async def make() -> FakeEngine:
            engine = FakeEngine(side, self, f"{side.value}-{len(self.engines)}")
            engine.shape = shape_of(side, **shape)
            self.engines.append(engine)
            await engine.start()
            return engine

        return self.do(make())

    def pair(self) -> tuple[FakeEngine, FakeEngine]:
        return self.engine(Side.PREFILL), self.engine(Side.DECODE)

    def renew(self, engine: FakeEngine) -> None:
        """A fresh process in place of whatever a test has left."""

        async def renew() -> None:
            await engine.die()
            engine.reset()
            engine.shape = shape_of(engine.side)
            await engine.start()

        self.do(renew())

    def die(self, engine: FakeEngine) -> None:
        self.do(engine.die())

    def restart(self, engine: FakeEngine, *, nonce: str, **shape: Any) -> None:
        """As a new process at the same address."""
        engine.nonce, engine.shape = nonce, shape_of(engine.side, **shape)
        self.do(engine.start())

    def call(self, what: Callable[[], Any]) -> None:
        """Do something to an asyncio object of the engines."""
        self.loop.call_soon_threadsafe(what)

    def do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_S)


@contextmanager
def hall() -> Iterator[Hall]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    place = Hall(loop)
    try:
        yield place
    finally:
        place.do(_close(place))
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _close(place: Hall) -> None:
    for engine in place.engines:
        await engine.die()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _read_call(reader: asyncio.StreamReader) -> Call:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.split("\r\n")
    headers = {
        key.lower(): value.strip() for key, _, value in (line.partition(":") for line in lines if line)
    }
    content = await reader.readexactly(int(headers.get("content-length", 0)))
    return Call(first.split()[1], json.loads(content or b"{}"), headers)


async def _forget_later(call: Call, in_flight: dict[str, asyncio.Event], steps: asyncio.Event) -> None:
    """A real engine ends a request at a step boundary, a moment after its client has left."""
    await asyncio.sleep(LATER_S)
    await steps.wait()
    _forget(call, in_flight)


def _forget(call: Call, in_flight: dict[str, asyncio.Event]) -> None:
    for rid in call.rids:
        in_flight.pop(rid, None)


def _write(writer: asyncio.StreamWriter, status: int, body: Any) -> None:
    content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status} Told\r\ncontent-length: {len(content)}\r\nconnection: close\r\n\r\n"
    writer.write(head.encode() + content)


def _write_head(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")


def _write_chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))
