"""What one rank does about requests that two engines share, by the mode of its engine.

The step loop tells its side of each change of such a request, in the same step on every rank; the side moves KV
in a thread of its own, and tells the front by itself how far it has come. An engine on its own has a side too, which
does nothing.
Failure rule: a request is given up here before its pages are freed; after `given_up` returns nobody touches them.
An error in the thread ends the process, as one in the step loop does.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from harness.refengine.batch import SequenceChunk
from harness.refengine.config import DisaggregationMode, EngineConfig
from harness.refengine.requests import GenerateRequest
from harness.refengine.runner import ModelRunner
from harness.refengine.scheduler import Running
from harness.refengine.served_model import resolve_model
from harness.refengine.transfer.events import HandoverEvent, PeerInfo
from harness.refengine.transfer.handshake import EngineShape
from harness.refengine.transfer.receiver import KVReceiver
from harness.refengine.transfer.sender import KVSender

# What an interpreter exits with after an exception in its main thread.
_EXIT_ERROR = 1

Tell = Callable[[HandoverEvent], None]


class Alone:
    """An engine that shares nothing. The other sides act on what concerns them."""

    # Where decode ranks find this one; 0 where none looks for it.
    port = 0

    def queued(self, request: GenerateRequest) -> None:
        """It waits for its turn."""

    def refused(self, request: GenerateRequest, *, why: str) -> None:
        """It can never run here."""

    def admitted(self, sequence: Running) -> None:
        """It has its pages."""

    def computed(self, sequence: Running, chunk: SequenceChunk) -> None:
        """The tokens of this chunk are in the pool."""

    def completed(self, request: GenerateRequest, *, first: dict[str, Any] | None) -> None:
        """Its prompt is in the pool as a whole; rank 0 knows the `first` token, as JSON values."""

    def given_up(self, request: GenerateRequest, *, held: bool, why: str) -> None:
        """It has been aborted, in whatever stage; `held` says whether it has pages."""

    def stats(self) -> dict[str, Any] | None:
        """What has been moved so far; None where nothing ever is."""
        return None

    def between_blocks(self) -> AbstractContextManager[Any]:
        """While this is held, nothing is written to the pool but by who holds it."""
        return nullcontext()


class PrefillSide(Alone):
    """Sends KV of prompts on."""

    def __init__(self, sender: KVSender) -> None:
        self._sender = sender
        self.port = sender.port

    def queued(self, request: GenerateRequest) -> None:
        if request.handover is not None:
            self._sender.open(
                request.handover_key, room=request.handover.room, prompt_len=len(request.tokens)
            )

    def refused(self, request: GenerateRequest, *, why: str) -> None:
        # Known for a moment, so that decode ranks which come for it are told why it is not here.
        self.queued(request)
        self.given_up(request, held=False, why=why)

    def computed(self, sequence: Running, chunk: SequenceChunk) -> None:
        if sequence.request.hands_over:
            stop = chunk.start + len(chunk.tokens)
            key = sequence.request.handover_key
            self._sender.chunk(key, start=chunk.start, stop=stop, pages=sequence.pages)

    def completed(self, request: GenerateRequest, *, first: dict[str, Any] | None) -> None:
        self._sender.finish(request.handover_key, first=first)

    def given_up(self, request: GenerateRequest, *, held: bool, why: str) -> None:
        self._sender.drop(request.handover_key, why=why)

    def stats(self) -> dict[str, Any]:
        return self._sender.stats()


class DecodeSide(Alone):
    """Receives KV of prompts."""

    def __init__(self, receiver: KVReceiver) -> None:
        self._receiver = receiver

    def refused(self, request: GenerateRequest, *, why: str) -> None:
        handover = request.handover
        if handover is not None:
            peer = PeerInfo.from_dict(handover.peer)
            self._receiver.decline(room=handover.room, prompt_len=len(request.tokens), peer=peer, why=why)

    def admitted(self, sequence: Running) -> None:
        handover = sequence.request.handover
        if handover is not None:
            self._receiver.expect(
                sequence.request.handover_key,
                room=handover.room,
                index=sequence.index,
                prompt_len=sequence.prompt_len,
                pages=sequence.pages,
                peer=PeerInfo.from_dict(handover.peer),
            )

    def given_up(self, request: GenerateRequest, *, held: bool, why: str) -> None:
        if held:
            self._receiver.drop(request.handover_key, why=why)
        else:
            self.refused(request, why=why)

    def stats(self) -> dict[str, Any]:
        return self._receiver.stats()

    def between_blocks(self) -> AbstractContextManager[Any]:
        return self._receiver.lock


def make_side(config: EngineConfig, *, runner: ModelRunner, tp_rank: int, tell: Tell) -> Alone:
    """This rank's side, as the engine was launched; `tell` is called from its thread.

    Call it in the rank's own process: a fork would lose the thread. Raises UsageError where the transport cannot
    be used here.
    """
    mode = config.disaggregation_mode
    if mode is DisaggregationMode.NULL:
        return Alone()
    shape = EngineShape.of(config, resolve_model(config.model))
    threading.excepthook = _end_process
    kind = KVSender if mode is DisaggregationMode.PREFILL else KVReceiver
    end = kind(config=config, shape=shape, tp_rank=tp_rank, pool=runner.pool, layout=runner.layout, tell=tell)
    return PrefillSide(end) if isinstance(end, KVSender) else DecodeSide(end)


def _end_process(error: threading.ExceptHookArgs) -> None:
    """A rank whose thread has ended would go on answering, and never move KV again."""
    threading.__excepthook__(error)
    os._exit(_EXIT_ERROR)
