"""How much faster shared memory is than gloo, for each verb, group size and message size, on this machine.

Forks the ranks of one group, lets them call a verb many times, and takes the median of several rounds as
rank 0 sees it. Ratios travel between machines far better than microseconds, so look at the last columns:
gloo/shm is against the engine's own one-hop verbs on gloo, native/shm against gloo's.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from harness.refengine.comm import Communicator, Plumbing, ShmPlumbing, TorchPlumbing
from harness.refengine.config import CommBackend, EngineConfig

EXAMPLE = """example:
  python benchmarks/collectives.py --sizes 4 8 --bytes 512 16384 --verbs all_reduce all_gather
"""

VERBS = (
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "all_reduce",
    "broadcast",
    "broadcast_bytes",
    "barrier",
)
BACKENDS = ("shm", "gloo", "gloo-native")
# An odd number of rounds, so that the median is one of them; several, since a busy machine spoils some.
ROUNDS = 5


def call_of(comm: Communicator, verb: str, nbytes: int) -> Callable[[], Any]:
    """One call of `verb` with `nbytes` per rank."""
    x = torch.ones(comm.size, nbytes // 4 // comm.size)
    data = bytes(nbytes) if comm.rank == 0 else None
    calls: dict[str, Callable[[], Any]] = {
        "broadcast_bytes": lambda: comm.broadcast_bytes(data),
        "barrier": comm.barrier,
    }
    return calls.get(verb, lambda: getattr(comm, verb)(x))


def seconds_per_call(comm: Communicator, verb: str, nbytes: int, calls: int) -> float:
    call = call_of(comm, verb, nbytes)
    rounds = []
    for _ in range(ROUNDS):
        comm.barrier()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        rounds.append((time.perf_counter() - start) / calls)
    return statistics.median(rounds)


def be_rank(rank: int, plumbing: Plumbing, args: argparse.Namespace, calls: int, out: int) -> NoReturn:
    """Measure everything in the order that all ranks know; rank 0 writes a number a line to `out`."""
    code = 1
    try:
        comm = plumbing.connect(rank).tp
        for verb in args.verbs:
            for nbytes in args.bytes:
                took = seconds_per_call(comm, verb, nbytes, calls)
                if rank == 0:
                    os.write(out, f"{took}\n".encode())
        code = 0
    except KeyboardInterrupt:
        pass
    finally:
        if code:
            traceback.print_exc()
            sys.stderr.flush()
        os._exit(code)


def measure(backend: str, size: int, args: argparse.Namespace) -> list[float]:
    """Seconds per call for each verb and message size, of a fresh group of forked ranks."""
    config = EngineConfig(tp=size, comm=CommBackend.SHM if backend == "shm" else CommBackend.GLOO)
    plumbing: ShmPlumbing | TorchPlumbing = (
        ShmPlumbing.create(config)
        if backend == "shm"
        else TorchPlumbing.create(config, native=backend == "gloo-native")
    )
    # Slow backends get fewer calls: they vary less, relatively.
    calls = args.calls if backend == "shm" else max(1, args.calls // 20)
    read_end, write_end = os.pipe()
    pids = set()
    for rank in range(size):
        pid = os.fork()
        if pid == 0:
            be_rank(rank, plumbing, args, calls, write_end)
        pids.add(pid)
    os.close(write_end)
    plumbing.close()
    wait_for(pids)
    with os.fdopen(read_end) as lines:
        return [float(line) for line in lines]


def wait_for(pids: set[int]) -> None:
    """Until all ended well; one that fails takes the others along and ends the benchmark."""
    while pids:
        pid, status = os.wait()
        pids.discard(pid)
        if status:
            for other in pids:
                os.kill(other, signal.SIGKILL)
            raise SystemExit("a rank failed")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[2, 4, 8], help="ranks in the group")
    parser.add_argument("--bytes", type=int, nargs="+", default=[512, 131072], help="message bytes per rank")
    parser.add_argument("--verbs", nargs="+", choices=VERBS, default=list(VERBS))
    parser.add_argument("--calls", type=int, default=200, help="calls per round on shm, a 20th of it on gloo")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'ranks':>5} {'bytes':>8} {'verb':<16}" + "".join(f"{b + ' us':>16}" for b in BACKENDS)
          + f"{'gloo/shm':>10}{'native/shm':>12}")  # fmt: skip
    for size in args.sizes:
        columns = zip(*(measure(backend, size, args) for backend in BACKENDS), strict=True)
        keys = [(verb, nbytes) for verb in args.verbs for nbytes in args.bytes]
        for (verb, nbytes), (shm, gloo, native) in zip(keys, columns, strict=True):
            micros = "".join(f"{seconds * 1e6:16.0f}" for seconds in (shm, gloo, native))
            print(
                f"{size:>5} {nbytes:>8} {verb:<16}{micros}{gloo / shm:>10.1f}{native / shm:>12.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
