"""Ranks of `test_reduce_scatter_along_dim` as real processes, started once for each backend and number.

As a module: `RankGroup`, the test's side. As a script: the ranks' parent, which imports torch once and forks them. A
rank that ends badly takes the others along, all of them end with their parent, and that ends with the test's process:
whatever happens, the test hears of it and waits for nobody.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from harness.refengine.process import describe_end, die_with_parent

# Backends that add up here, in fp32; a library's own verb promises no order and no width.
ADD_WIDER = ("shm", "gloo")
# Many times what the longest group takes on a loaded machine; only ranks that hang reach it.
DEADLINE_S = 240.0
# A killed rank makes its peers fail at once over some backends: so long ends are collected after the first.
AFTERSHOCK_S = 0.1


class RanksLostError(AssertionError):
    """Ranks that ended or went silent before they had said what was awaited."""


class RankGroup:
    """So many processes over a backend, each of which runs the program and says something in lines of JSON."""

    def __init__(self, *, backend: str, size: int, program: str, profile: str) -> None:
        pairs = [socket.socketpair() for _ in range(size)]
        self._pipes = [ours.makefile("rb") for ours, _ in pairs]
        theirs = [child.fileno() for _, child in pairs]
        order = {"backend": backend, "program": program, "profile": profile, "pipes": theirs}
        self._parent = subprocess.Popen(
            [sys.executable, __file__, json.dumps({**order, "parent": os.getpid()})],
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
            pass_fds=theirs,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._parent.stdout is not None
        self._told = self._parent.stdout
        for ours, child in pairs:
            ours.close()
            child.close()

    def hear(self, deadline_s: float = DEADLINE_S) -> list[dict[str, Any]]:
        """The next line of each rank. Raises RanksLostError, with how they ended, or who said nothing in time."""
        end = time.monotonic() + deadline_s
        said: dict[int, dict[str, Any]] = {}
        while len(said) < len(self._pipes):
            waiting = {pipe: rank for rank, pipe in enumerate(self._pipes) if rank not in said}
            readable, _, _ = select.select(list(waiting), [], [], max(0.0, end - time.monotonic()))
            if not readable:
                self.close()
                raise RanksLostError(f"ranks {sorted(waiting.values())} said nothing within {deadline_s:g} s")
            for pipe in readable:
                if not (line := pipe.readline()):
                    raise RanksLostError(self._ends() or f"rank {waiting[pipe]} ended without a word")
                said[waiting[pipe]] = json.loads(line)
        return [said[rank] for rank in range(len(self._pipes))]

    def close(self) -> None:
        """End all processes; harmless when they have ended."""
        self._parent.kill()
        self._parent.wait()
        for pipe in [*self._pipes, self._told]:
            pipe.close()

    def _ends(self) -> str:
        """How ranks ended, from their parent, which ends with them."""
        told = self._told.read()
        self._parent.wait()
        return "; ".join(told.splitlines())


def be_parent(order: dict[str, Any]) -> int:
    """Fork the ranks and wait for them; 0 where all ended well."""
    die_with_parent(order["parent"])
    # Imported late, so that this process is tied to its parent before the seconds that torch takes.
    import torch

    torch.set_num_threads(1)
    size = len(order["pipes"])
    plumbing = _plumbing(order["backend"], size)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    parent = os.getpid()
    ranks: dict[int, int] = {}
    for rank in range(size):
        if (pid := os.fork()) == 0:
            die_with_parent(parent)
            _be_rank(rank, order, lambda rank=rank: plumbing.connect(rank))
        ranks[pid] = rank
    for pipe in order["pipes"]:
        os.close(pipe)
    return _watch(ranks)


def _plumbing(backend: str, size: int) -> Any:
    """What the ranks share: `shm`, `gloo`, `gloo-native` or `nccl`. Raises UsageError where that cannot be here."""
    from harness.refengine.comm import TorchPlumbing, create_plumbing
    from harness.refengine.config import CommBackend, Device, EngineConfig, StartMethod

    if backend == "nccl":
        # An engine must not fork once CUDA is up; this process only counts devices, which does not bring it up.
        cuda = {"device": Device.CUDA, "start_method": StartMethod.SPAWN}
        return create_plumbing(EngineConfig(tp=size, comm=CommBackend.NCCL, **cuda))
    name, _, native = backend.partition("-")
    config = EngineConfig(tp=size, comm=CommBackend(name))
    return TorchPlumbing.create(config, native=True) if native else create_plumbing(config)


def _be_rank(rank: int, order: dict[str, Any], connect: Callable[[], Any]) -> None:
    """Run the program and end; nothing that belongs to the parent may run here."""
    code = 1
    try:
        for other, pipe in enumerate(order["pipes"]):
            if other != rank:
                os.close(pipe)
        with os.fdopen(order["pipes"][rank], "w") as pipe:
            _run(rank, order, connect, lambda said: print(json.dumps(said), file=pipe, flush=True))
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        raise
    finally:
        sys.stderr.flush()
        os._exit(code)


def _run(
    rank: int, order: dict[str, Any], connect: Callable[[], Any], say: Callable[[dict[str, Any]], None]
) -> None:
    import torch
    from reduce_scatter_cases import sweep, sweep_rounded

    device = torch.device("cpu")
    if order["profile"] == "gpu":
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
    comms = connect()
    if order["program"] == "sweep":
        found = sweep(comms.tp, order["profile"], device)
        if order["backend"] in ADD_WIDER:
            rounded = sweep_rounded(comms.tp)
            found |= {**rounded, "problems": rounded["problems"] + found["problems"]}
        say(found)
    else:
        x = torch.ones(len(order["pipes"]), 8, device=device)
        comms.tp.reduce_scatter(x)
        say({"pid": os.getpid()})
        while True:
            comms.tp.reduce_scatter(x)
    comms.close()


def _watch(ranks: dict[int, int]) -> int:
    """Wait until all have ended; at the first bad end tell of it, and of those that came with it, and end the rest."""
    while ranks:
        signal.sigwait({signal.SIGCHLD})
        bad = _reap(ranks)
        if not bad:
            continue
        while signal.sigtimedwait({signal.SIGCHLD}, AFTERSHOCK_S):
            bad |= _reap(ranks)
        for pid in ranks:
            os.kill(pid, signal.SIGKILL)
        for pid in ranks:
            os.waitpid(pid, 0)
        for rank, status in sorted(bad.items()):
            print(f"rank {rank} {describe_end(status)}", flush=True)
        return 1
    return 0


def _reap(ranks: dict[int, int]) -> dict[int, int]:
    """Take those that have ended out of `ranks`; wait statuses of the bad ends, by rank."""
    bad = {}
    for pid in list(ranks):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            rank = ranks.pop(pid)
            if status:
                bad[rank] = status
    return bad


if __name__ == "__main__":
    sys.exit(be_parent(json.loads(sys.argv[1])))
