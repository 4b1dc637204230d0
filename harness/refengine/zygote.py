"""The parent of all ranks: imports torch once, makes what ranks share, forks them, and watches them.

Phases: import and prepare, with one thread only (a fork of a process that has run OpenMP threads hangs);
start the ranks by fork, or by running its own entry point again with a rank number where CUDA forbids fork;
wait. A rank never ends on its own, so the first end of one is reported to the launcher, the others are
killed, and the exit code is EXIT_RANK_DIED. The launcher ends a zygote by SIGKILL: ranks hold nothing worth
saving.

An entry point that patches seams calls `main` after it has done so.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from harness.errors import UsageError
from harness.refengine.config import AttentionBackend, Device, StartMethod
from harness.refengine.process import describe_end, die_with_parent, introduce
from harness.refengine.wiring import Wiring

EXIT_RANK_DIED = 70
# A killed rank makes its peers fail within microseconds over some backends. After the first end, this long
# the others' ends are collected too, so that a kill is told apart from the errors it caused.
AFTERSHOCK_S = 0.1

_WATCHED = {signal.SIGCHLD}


def main(argv: Sequence[str], *, faults: Sequence[str] = ()) -> int:
    """Be the zygote that the launcher's `argv` describes, until it ends; returns the exit code.

    `faults` are names of what the caller has patched, told in `/server_info`. Returns in every forked rank as
    well, with that rank's exit code: the caller just passes the code to `sys.exit`.
    """
    wiring = Wiring.from_argv(argv)
    die_with_parent(wiring.parent)
    try:
        if wiring.rank is not None:
            return _spawned_rank(wiring, rank=wiring.rank, faults=faults)
        return _zygote(wiring, faults=faults)
    except UsageError as error:
        report(wiring, {"refused": str(error)})
        return error.exit_code


def report(wiring: Wiring, message: dict[str, object]) -> None:
    """One line to the launcher; short enough to be written whole whoever else writes."""
    os.write(wiring.status, json.dumps(message).encode() + b"\n")


def _zygote(wiring: Wiring, *, faults: Sequence[str]) -> int:
    config = wiring.config
    introduce("zygote")
    # Blocked from here on and waited for: no end of a rank can fall between two system calls.
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    # Imported late, so that this process is tied to its parent before the second that torch takes.
    from harness.refengine.comm import create_plumbing
    from harness.refengine.rank import run_rank
    from harness.refengine.triton_kernels.loading import prepare_kernels

    if config.attention_backend is AttentionBackend.TRITON and config.start_method is StartMethod.FORK:
        # Once for all ranks, and before anything else could import Triton another way.
        prepare_kernels(cuda=config.device is Device.CUDA)
    plumbing = create_plumbing(config)
    # Out of the collector's sight: it would touch every object in every rank, and so copy shared pages.
    gc.collect()
    gc.freeze()
    zygote = os.getpid()
    ranks: dict[int, int] = {}
    # Kept until the end: a forgotten Popen is waited for by the next one, which would steal a rank's status.
    spawned: list[subprocess.Popen[bytes]] = []
    for rank in range(config.tp):
        if config.start_method is StartMethod.SPAWN:
            spawned.append(_spawn(wiring, rank=rank, plumbing=plumbing.fds))
            ranks[spawned[-1].pid] = rank
            continue
        pid = os.fork()
        if pid == 0:
            die_with_parent(zygote)
            _become_rank(wiring, rank=rank)
            return run_rank(config, rank=rank, pipe=wiring.pipes[rank], plumbing=plumbing, faults=faults)
        ranks[pid] = rank
    for pipe in wiring.pipes:
        os.close(pipe)
    plumbing.close()
    return _watch(wiring, ranks)


def _become_rank(wiring: Wiring, *, rank: int) -> None:
    """Undo in a forked child what only the zygote needs."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
    for other, pipe in enumerate(wiring.pipes):
        if other != rank:
            os.close(pipe)


def _spawn(wiring: Wiring, *, rank: int, plumbing: tuple[int, ...]) -> subprocess.Popen[bytes]:
    """Start one rank in a fresh interpreter, by the zygote's own entry point: it patches the same seams."""
    zygote = os.getpid()
    child = wiring.for_rank(rank, parent=zygote, plumbing=plumbing)

    def prepare() -> None:
        die_with_parent(zygote)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)

    return subprocess.Popen(
        [*wiring.entry, *child.to_argv()],
        pass_fds=(wiring.pipes[rank], wiring.status, *plumbing),
        preexec_fn=prepare,
    )


def _spawned_rank(wiring: Wiring, *, rank: int, faults: Sequence[str]) -> int:
    from harness.refengine.comm import adopt_plumbing
    from harness.refengine.rank import run_rank

    plumbing = adopt_plumbing(wiring.config, wiring.plumbing)
    return run_rank(wiring.config, rank=rank, pipe=wiring.pipes[rank], plumbing=plumbing, faults=faults)


def _watch(wiring: Wiring, ranks: dict[int, int]) -> int:
    """Wait for the first rank to end; then end and reap all."""
    ends: dict[int, int] = {}
    while not ends:
        signal.sigwait(_WATCHED)
        ends = _reap(ranks)
    while signal.sigtimedwait(_WATCHED, AFTERSHOCK_S):
        ends |= _reap(ranks)
    # Killed by a signal says more than failed because a peer was gone.
    rank, status = min(ends.items(), key=lambda end: not os.WIFSIGNALED(end[1]))
    report(wiring, {"died": f"rank {rank}", "how": describe_end(status)})
    _kill(ranks)
    return EXIT_RANK_DIED


def _reap(ranks: dict[int, int]) -> dict[int, int]:
    """Wait statuses of the ranks that have ended, by rank; takes them out of `ranks`."""
    ends: dict[int, int] = {}
    while ranks:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            break
        ends[ranks.pop(pid)] = status
    return ends


def _kill(ranks: dict[int, int]) -> None:
    for pid in ranks:
        os.kill(pid, signal.SIGKILL)
    for pid in ranks:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
