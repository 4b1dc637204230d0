"""The front's end of the pipes: requests to rank 0, answers from all ranks. Runs in the front's event loop.

Nothing here blocks: asyncio streams read and write the pipes as they become ready, and a sender waits
(`drain`) while rank 0 has not read what was sent before.
Failure rule: when one rank's pipe ends, the engine is gone for good; every call in flight and every later one
gets EngineGoneError, and the launcher ends this process.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Sequence
from itertools import count
from typing import Any

from harness.errors import EngineDiedError, EngineError, UsageError
from harness.refengine.frames import LENGTH_BYTES, encode_frame, frame_length
from harness.refengine.front.handovers import Handovers
from harness.refengine.requests import (
    Abort,
    GenerateRequest,
    Message,
    Query,
    QueryKind,
    Said,
    message_to_dict,
)
from harness.refengine.wiring import Wiring

Event = dict[str, Any]


class EngineGoneError(EngineDiedError):
    """A rank's pipe has ended."""


class EngineSilentError(EngineError):
    """Every rank is there, but an answer did not come in time: one of them hangs, or is stopped."""


class EngineLink:
    """Requests in flight by rid, each with the queue that gets its events."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        # One per rank, kept because a forgotten writer closes its pipe; only rank 0 is written to.
        self._writers: list[asyncio.StreamWriter] = []
        self._readers: list[asyncio.Task[None]] = []
        self._pids: dict[int, int] = {}
        self._ports: dict[int, int] = {}
        self._handovers = Handovers(wiring.config.tp)
        self._gone = ""
        self._inboxes: dict[str, asyncio.Queue[Event]] = {}
        self._asked: dict[int, tuple[asyncio.Future[list[Any]], dict[int, Any]]] = {}
        self._query_ids = count()
        self._progress = asyncio.Event()

    @property
    def ready(self) -> bool:
        """Every rank has answered and none has ended."""
        return not self._gone and len(self._pids) == self._wiring.config.tp

    @property
    def transfer_ports(self) -> list[int]:
        """Where each rank waits for decode ranks; none on an engine that hands nothing over. Raises EngineGoneError."""
        self._check_ready()
        return [self._ports[rank] for rank in sorted(self._ports)]

    async def connect(self) -> None:
        """Listen to all ranks, for as long as the loop runs."""
        for rank, fd in enumerate(self._wiring.pipes):
            reader, writer = await asyncio.open_unix_connection(sock=socket.socket(fileno=fd))
            self._writers.append(writer)
            self._readers.append(asyncio.create_task(self._listen(rank, reader)))

    def rids(self, named: str | None = None) -> list[str]:
        """All in flight, or those that a client calls `named`: a list of prompts has `named_0`, `named_1`, …"""
        if named is None:
            return list(self._inboxes)
        return [rid for rid in self._inboxes if rid == named or _is_part(rid, named)]

    def submit(self, requests: Sequence[GenerateRequest], inbox: asyncio.Queue[Event]) -> None:
        """Send requests; events of each arrive in `inbox` until one has a "finish", or the engine is gone.

        Raises UsageError for a rid or a room in flight, before anything is sent. Never waits, so that all rids are
        taken at once; the caller awaits `drain`.
        """
        self._check_ready()
        rids = [request.rid for request in requests]
        for place, rid in enumerate(rids):
            if rid in self._inboxes or rid in rids[:place]:
                raise UsageError(f"rid {rid!r} is in flight already; every request needs its own")
        self._handovers.open(requests)
        self._inboxes |= dict.fromkeys(rids, inbox)
        for request in requests:
            self._send(request)

    def abort(self, rid: str, *, why: str) -> None:
        """Ask to end a request; its inbox gets the end. Never waits: usable while being cancelled.

        `why` is a clause for the engine that the request may be shared with.
        """
        if rid in self._inboxes and not self._gone:
            # How it ends is decided: a rank that hears of it from the other engine first tells nothing new.
            self._handovers.close(rid)
            self._send(Abort(rid=rid, why=why))

    async def progress(self) -> None:
        """Returns when some request, whosever it is, has got its next token: ranks have met since the call."""
        await self._progress.wait()

    async def ask(self, kind: QueryKind, *, limit_s: float | None = None) -> list[Any]:
        """The answers of all ranks, in rank order, taken at one step boundary.

        Raises EngineGoneError, and EngineSilentError where an answer is missing after `limit_s`.
        """
        self._check_ready()
        query = Query(id=next(self._query_ids), kind=kind)
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        answers: dict[int, Any] = {}
        self._asked[query.id] = (future, answers)
        try:
            async with asyncio.timeout(limit_s):
                self._send(query)
                await self.drain()
                return await future
        except TimeoutError:
            missing = [str(rank) for rank in range(self._wiring.config.tp) if rank not in answers]
            raise EngineSilentError(
                f"no answer from rank {', '.join(missing)} within {limit_s:g} s"
            ) from None
        finally:
            del self._asked[query.id]

    def _send(self, message: Message) -> None:
        self._writers[0].write(encode_frame(message_to_dict(message)))

    async def drain(self) -> None:
        """Wait until rank 0 has read nearly all that was sent. Raises EngineGoneError."""
        try:
            await self._writers[0].drain()
        except ConnectionError as error:
            raise EngineGoneError("the engine is gone: rank 0 reads no more") from error

    def _check_ready(self) -> None:
        if not self.ready:
            raise EngineGoneError(self._gone or "the engine is not ready yet")

    async def _listen(self, rank: int, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                length = frame_length(await reader.readexactly(LENGTH_BYTES))
                self._hear(rank, json.loads(await reader.readexactly(length)))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._lose(rank)

    def _hear(self, rank: int, message: Event) -> None:
        match message["type"]:
            case Said.READY:
                self._pids[rank] = message["pid"]
                if message["port"]:
                    self._ports[rank] = message["port"]
                if self.ready:
                    self._report_ready()
            case Said.PROGRESS:
                for item in message["items"]:
                    self._deliver(item, last=item["finish"] is not None)
                self._progress.set()
                self._progress = asyncio.Event()
            case Said.REFUSED:
                self._deliver(message, last=True)
            case Said.ANSWER:
                self._collect(rank, message)
            case Said.BOUND | Said.SENT | Said.ARRIVED:
                if verdict := self._handovers.hear(rank, message):
                    self._send(verdict)
            case Said.FAILED:
                self._fail(rank, message)

    def _deliver(self, event: Event, *, last: bool) -> None:
        rid = event["rid"]
        inbox = self._inboxes.pop(rid, None) if last else self._inboxes.get(rid)
        if last:
            self._handovers.close(rid)
        if inbox is not None:
            inbox.put_nowait(event)

    def _fail(self, rank: int, message: Event) -> None:
        """One rank's part of a handover has failed. The others end theirs; its call hears it before that."""
        rid = self._handovers.rid_of(message["rid"])
        if rid is None:
            return
        why = f"rank {rank}: {message['why']}"
        self._deliver({"type": Said.FAILED, "rid": rid, "message": f"{rid!r} failed on {why}"}, last=False)
        self.abort(rid, why=why)

    def _collect(self, rank: int, message: Event) -> None:
        if message["id"] not in self._asked:
            return
        future, answers = self._asked[message["id"]]
        answers[rank] = message["answer"]
        if len(answers) == self._wiring.config.tp and not future.done():
            future.set_result([answers[rank] for rank in sorted(answers)])

    def _lose(self, rank: int) -> None:
        self._gone = self._gone or f"the engine is gone: rank {rank} has ended"
        for rid, inbox in self._inboxes.items():
            inbox.put_nowait({"type": "gone", "rid": rid, "message": self._gone})
        self._inboxes.clear()
        for future, _ in self._asked.values():
            if not future.done():
                future.set_exception(EngineGoneError(self._gone))

    def _report_ready(self) -> None:
        pids = {"front": os.getpid(), "ranks": [self._pids[rank] for rank in sorted(self._pids)]}
        os.write(self._wiring.status, json.dumps({"ready": pids}).encode() + b"\n")


def _is_part(rid: str, whole: str) -> bool:
    number = rid.removeprefix(f"{whole}_")
    return number != rid and number.isdecimal()
