"""Ranks of two engines as real processes, forked from a clean one that has no threads: for tests of how they end."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import Any

import torch
from transfer_world import FIRST, PATIENCE_S, DecodeRank, PrefillRank, Prompt

from harness.refengine.config import EngineConfig
from harness.refengine.transfer.events import HandoverEvent, PeerInfo

_forks = multiprocessing.get_context("forkserver")


def start_fork_server() -> None:
    """Have it import torch and this module once; of itself it does not look where pytest looks."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    _forks.set_forkserver_preload(["transfer_processes"])
    try:
        forkserver.ensure_running()
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


class Told:
    """Where a child puts events: on its pipe, which its main thread answers on too."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def put(self, said: object) -> None:
        with self._lock:
            self._pipe.send(said)


def serve(
    pipe: Connection, kind: type[PrefillRank | DecodeRank], args: dict[str, Any], sizes: dict[str, int]
) -> None:
    """A rank that does what it is told: (None or "end", method, arguments), answered with ("did", result)."""
    torch.set_num_threads(1)
    told = Told(pipe)
    rank = kind(**args, told=told).start(**sizes)
    end = rank.sender if isinstance(rank, PrefillRank) else rank.receiver
    told.put(("did", getattr(end, "port", 0)))
    while True:
        target, method, arguments = pipe.recv()
        told.put(("did", getattr(end if target == "end" else rank, method)(**arguments)))


class RankProcess:
    """A rank in a process of its own. `do` calls it and waits; `hears` gives its events."""

    def __init__(self, kind: type[PrefillRank | DecodeRank], args: dict[str, Any], **sizes: int) -> None:
        self._pipe, theirs = _forks.Pipe()
        self.process = _forks.Process(target=serve, args=(theirs, kind, args, sizes), daemon=True)
        self.process.start()
        theirs.close()
        self._events: queue.SimpleQueue[HandoverEvent] = queue.SimpleQueue()
        self.port: int = self._answer()

    def do(self, target: str, method: str, **arguments: Any) -> Any:
        self._pipe.send((target, method, arguments))
        return self._answer()

    def hears(self) -> HandoverEvent:
        while self._events.empty():
            assert self._pipe.poll(PATIENCE_S), "nothing was told"
            self._sort(self._pipe.recv())
        return self._events.get()

    def signal(self, number: int) -> None:
        os.kill(self.process.pid or 0, number)

    def close(self) -> None:
        self.process.kill()
        self.process.join()
        self.process.close()
        self._pipe.close()

    def _answer(self) -> Any:
        while True:
            assert self._pipe.poll(PATIENCE_S), "no answer"
            said = self._pipe.recv()
            if isinstance(said, tuple):
                return said[1]
            self._sort(said)

    def _sort(self, said: Any) -> None:
        self._events.put(said)


class Processes(ExitStack):
    """Both engines, a process for each rank; killed at the end of a `with`."""

    def __init__(self, prefill: EngineConfig, decode: EngineConfig, *, num_pages: int, **sizes: int) -> None:
        super().__init__()
        prefill = replace(prefill, nonce="launched")
        start_fork_server()
        with ExitStack() as made:

            def start(
                kind: type[PrefillRank | DecodeRank], config: EngineConfig, **sizes: int
            ) -> list[RankProcess]:
                ranks = []
                for rank in range(config.tp):
                    args = {"config": config, "tp_rank": rank, "num_pages": num_pages}
                    ranks.append(RankProcess(kind, args, **sizes))
                    made.callback(ranks[-1].close)
                return ranks

            self.prefill = start(PrefillRank, prefill)
            self.decode = start(DecodeRank, decode, **sizes)
            self.push(made.pop_all())
        here = PrefillRank(prefill, 0, num_pages)
        ports = tuple(rank.port for rank in self.prefill)
        self.peer = PeerInfo(host="127.0.0.1", shape=here.shape, ports=ports, nonce="launched")

    @property
    def ranks(self) -> list[RankProcess]:
        return [*self.prefill, *self.decode]

    def begin(
        self, rid: str, *, room: int, prompt: Prompt, here: Sequence[int], there: Sequence[int]
    ) -> None:
        """Open a room and have all of the prompt sent."""
        for rank in self.decode:
            expected = {"room": room, "index": room, "prompt_len": prompt.length, "pages": tuple(there)}
            rank.do("end", "expect", rid=rid, peer=self.peer, **expected)
        for rank in self.prefill:
            rank.do("", "fill", prompt=prompt, pages=here)
            rank.do("end", "open", rid=rid, room=room, prompt_len=prompt.length)
            rank.do("end", "chunk", rid=rid, start=0, stop=prompt.length, pages=tuple(here))
            rank.do("end", "finish", rid=rid, first=FIRST)


STOP, GO_ON, KILL = signal.SIGSTOP, signal.SIGCONT, signal.SIGKILL
