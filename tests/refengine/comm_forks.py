"""Ranks as real forked processes, for tests: a clean helper process forks them, never pytest's own.

As a module: `RankForker` starts the helper and sends it one scenario a line. As a script: the helper. It has
imported torch with one thread and started none, so it may fork. A rank that fails makes the helper kill the
others, so that no scenario hangs; ranks die with the helper, and the helper ends when its input does.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from comm_programs import Scenario, run_program
from gloo_cases import all_cases, call_gloo

from harness.refengine.comm import (
    CommError,
    Comms,
    Plumbing,
    ShmPlumbing,
    TorchPlumbing,
    adopt_plumbing,
    make_communicators,
)
from harness.refengine.config import CommBackend, EngineConfig
from harness.refengine.seams import patch

_PR_SET_PDEATHSIG = 1
# Far beyond the few seconds that the longest scenario takes on a loaded machine; ranks die with the helper.
DEADLOCK_S = 60.0


class CountingProxy:
    """Put around a communicator from outside: forwards all, and notes the public verbs called."""

    VERBS = ("all_gather", "reduce_scatter", "all_to_all", "all_reduce", "broadcast", "barrier")

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.seen: dict[str, int] = dict.fromkeys(self.VERBS, 0)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.inner, name)
        kind = "broadcast" if name == "broadcast_bytes" else name
        if kind not in self.VERBS:
            return attribute

        def call(*args: Any, **kwargs: Any) -> Any:
            self.seen[kind] += 1
            return attribute(*args, **kwargs)

        return call


def wrap_communicators() -> Callable[..., Any]:
    """Patch the seam so that every communicator comes wrapped; returns what stood there, to put back."""

    def wrapped(config: EngineConfig, *, rank: int, plumbing: Plumbing) -> Comms:
        comms = original(config, rank=rank, plumbing=plumbing)
        return Comms(tp=CountingProxy(comms.tp), dcp=CountingProxy(comms.dcp))  # type: ignore[arg-type]

    original = patch("make-communicators", wrapped)
    return original


class RankForker:
    """The tests' side: `run` plays a scenario on forked ranks and returns what each rank returned."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._helper = subprocess.Popen(
            [sys.executable, __file__],
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, scenario: Scenario) -> list[Any]:
        assert self._helper.stdin is not None
        assert self._helper.stdout is not None
        with tempfile.TemporaryDirectory(dir=self._scratch) as out:
            self._helper.stdin.write(json.dumps({"out": out, **asdict(scenario)}) + "\n")
            self._helper.stdin.flush()
            answered, _, _ = select.select([self._helper.stdout], [], [], DEADLOCK_S)
            if not answered:
                self._helper.kill()
            assert self._helper.stdout.readline() == "done\n", f"a rank failed or all hang in {scenario}"
            return [torch.load(path, weights_only=False) for path in sorted(Path(out).iterdir())]

    def close(self) -> None:
        self._helper.communicate()


def kinds(comms: Comms, rank: int, scenario: Scenario) -> list[str]:
    """Which implementation the plumbing chose for each group."""
    return [type(comms.tp).__name__, type(comms.dcp).__name__]


def disagree(comms: Comms, rank: int, scenario: Scenario) -> str:
    """The last rank calls something else than the others; all must hear of it."""
    try:
        if rank == scenario.tp - 1:
            comms.tp.all_reduce(torch.ones(3))
        else:
            comms.tp.all_gather(torch.ones(2))
    except CommError as error:
        return str(error)
    return "no rank noticed"


def disagree_in_meaning(comms: Comms, rank: int, scenario: Scenario) -> list[str]:
    """Each of two ranks names itself as source, and another dim; what it is told of each call."""
    calls: list[Callable[[], object]] = [
        lambda: comms.tp.broadcast(torch.ones(2), src=rank),
        lambda: comms.tp.broadcast_bytes(b"mine", src=rank),
        lambda: comms.tp.all_gather(torch.ones(2, 2), dim=rank),
    ]
    return [_refusal(call) for call in calls]


def _refusal(call: Callable[[], object]) -> str:
    try:
        call()
    except CommError as error:
        return str(error)
    return "not refused"


def counted(comms: Comms, rank: int, scenario: Scenario) -> dict[str, Any]:
    """A random program through proxies: what they saw, and what the communicators inside counted."""
    run_program(comms, rank, scenario)
    tp: Any = comms.tp
    dcp: Any = comms.dcp
    return {
        "seen": {"tp": tp.seen, "dcp": dcp.seen},
        "counts": {"tp": dict(tp.counts), "dcp": dict(dcp.counts)},
    }


def raw_gloo(comms: Comms, rank: int, scenario: Scenario) -> list[torch.Tensor]:
    """All cases by torch.distributed itself, on the process group that the communicators stand on."""
    return [call_gloo(case, i, rank=rank, size=scenario.tp) for i, case in enumerate(all_cases())]


def orphaned(comms: Comms, rank: int, scenario: Scenario) -> str:
    """What a rank of another group says whose parent dies while it waits for a peer that never starts."""
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        _wait_as_orphan(write_end)
    os.close(write_end)
    with os.fdopen(read_end) as said:
        return said.read()


def _wait_as_orphan(write_end: int) -> None:
    """Be a parent that forks one rank of a group and dies at once."""
    plumbing = ShmPlumbing.create(EngineConfig(tp=2))
    ready_read, ready_write = os.pipe()
    if os.fork() == 0:
        comms = plumbing.connect(0)
        os.write(ready_write, b"!")
        try:
            comms.tp.barrier()
        except CommError as error:
            os.write(write_end, str(error).encode())
        os._exit(0)
    os.read(ready_read, 1)
    os._exit(0)


PROGRAMS: dict[str, Callable[[Comms, int, Scenario], Any]] = {
    "random": run_program,
    "kinds": kinds,
    "disagree": disagree,
    "disagree_in_meaning": disagree_in_meaning,
    "counted": counted,
    "raw_gloo": raw_gloo,
    "orphaned": orphaned,
}


def _plumbing(config: EngineConfig, scenario: Scenario) -> ShmPlumbing | TorchPlumbing:
    if scenario.backend == "shm":
        return ShmPlumbing.create(config, slot_bytes=scenario.slot_bytes)
    return TorchPlumbing.create(config, native=scenario.backend == "native")


def _be_rank(
    rank: int, config: EngineConfig, plumbing: ShmPlumbing | TorchPlumbing, scenario: Scenario, out: Path
) -> None:
    if scenario.adopt:
        plumbing = adopt_plumbing(config, tuple(os.dup(fd) for fd in plumbing.fds))
    comms = make_communicators(config, rank=rank, plumbing=plumbing)
    result = PROGRAMS[scenario.program](comms, rank, scenario)
    torch.save(result, out / f"{rank:02}.pt")
    comms.close()


def _fork_rank(*args: Any) -> int:
    pid = os.fork()
    if pid:
        return pid
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    code = 1
    try:
        _be_rank(*args)
        code = 0
    finally:
        if code:
            traceback.print_exc()
            sys.stderr.flush()
        os._exit(code)  # nothing that belongs to the helper may run here


def _play(scenario: Scenario, out: Path) -> bool:
    """Fork all ranks and wait for them; True when all ended well."""
    comm = CommBackend.SHM if scenario.backend == "shm" else CommBackend.GLOO
    config = EngineConfig(tp=scenario.tp, dcp=scenario.dcp, comm=comm)
    before = wrap_communicators() if scenario.program == "counted" else None
    plumbing = _plumbing(config, scenario)
    pids = {_fork_rank(rank, config, plumbing, scenario, out) for rank in range(scenario.tp)}
    plumbing.close()
    if before is not None:
        patch("make-communicators", before)
    good = True
    while pids:
        pid, status = os.wait()
        pids.discard(pid)
        if status and good:
            good = False
            for other in pids:
                os.kill(other, signal.SIGKILL)
    return good


def main() -> None:
    torch.set_num_threads(1)
    for line in sys.stdin:
        order = json.loads(line)
        out = Path(order.pop("out"))
        print("done" if _play(Scenario(**order), out) else "failed", flush=True)


if __name__ == "__main__":
    main()
