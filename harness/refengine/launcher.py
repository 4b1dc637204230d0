"""The process a user starts: it makes everything that can be inherited, starts zygote and front, and watches.

    launcher ─┬─ zygote ─── rank 0 … rank N-1      one socket pair between the front and each rank
              └─ front (HTTP)

Phases: bind the port, make pipes, start both children; wait until the front has heard all ranks, say `ready`
on stdout; watch until something ends.
Failure rule: when any process ends that should not, all others are killed and reaped, one line on stderr names
who died and how, and the exit code is EXIT_DIED. SIGTERM and SIGINT are the clean way out: exit code 0. What a
start is refused for (port in use, a model that does not divide) is a UsageError.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.refengine.config import AttentionBackend, CommBackend, DisaggregationMode, EngineConfig
from harness.refengine.listening import announce, bind, check_ready_file, url_of
from harness.refengine.model import check_model_topology
from harness.refengine.process import adopt_orphans, describe_end, die_with_parent, introduce, reap_all
from harness.refengine.served_model import resolve_model
from harness.refengine.transfer.transports import check_backend
from harness.refengine.triton_kernels.installed import require_triton
from harness.refengine.wiring import Wiring

# sysexits.h EX_SOFTWARE: an internal error, told apart from usage errors (2) and death by a signal (128 + n).
EXIT_DIED = 70
# A clean stop waits this long for the front, which itself gives its answers FINISH_S, and then kills it.
STOP_GRACE_S = 1.5

_STDERR = 2

ZYGOTE = (sys.executable, "-m", "harness.refengine.zygote")
FRONT = (sys.executable, "-m", "harness.refengine.front")


def launch(
    config: EngineConfig, *, zygote_argv: Sequence[str] | None = None, ready_file: Path | None = None
) -> int:
    """Run an engine until it is told to stop; returns the exit code. Call it from the main thread.

    `zygote_argv` replaces the command that starts the zygote, for an entry point that patches seams first.
    `ready_file` gets `{url, pid, nonce, pids}` as JSON once the engine is ready.
    Raises UsageError, with nothing left running, where the engine cannot be started as asked.
    """
    _refuse_early(config, ready_file=ready_file)
    config = replace(config, nonce=config.nonce or secrets.token_hex(8))
    adopt_orphans()
    introduce(f"launcher tp{config.tp} dcp{config.dcp}")
    with ExitStack() as stack:
        stop = stack.enter_context(_stop_signals())
        listener = stack.enter_context(bind(config.host, config.port))
        engine = Engine(config, listener=listener, entry=tuple(zygote_argv or ZYGOTE))
        # Whatever happens from here on, no process outlives this block.
        stack.callback(engine.kill)
        engine.start()
        return engine.watch(stop=stop, ready_file=ready_file)


@dataclass(slots=True)
class Engine:
    """The two children and what they have told. `reports` are lines of the status pipe, in order."""

    config: EngineConfig
    listener: socket.socket
    entry: tuple[str, ...]
    zygote: subprocess.Popen[bytes] | None = None
    front: subprocess.Popen[bytes] | None = None
    status: int = -1
    _unread: bytes = b""
    _pidfds: dict[str, int] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return url_of(self.listener)

    def start(self) -> None:
        """Start zygote and front. Each end of each pipe stays open in one process only, so an end is seen."""
        pairs = [socket.socketpair() for _ in range(self.config.tp)]
        self.status, status_end = os.pipe()
        os.set_blocking(self.status, False)
        wiring = Wiring(
            config=self.config,
            parent=os.getpid(),
            launcher=os.getpid(),
            pipes=tuple(rank.fileno() for _, rank in pairs),
            status=status_end,
            entry=self.entry,
        )
        self.zygote = _start([*self.entry, *wiring.to_argv()], fds=(*wiring.pipes, status_end))
        wiring = replace(
            wiring, pipes=tuple(front.fileno() for front, _ in pairs), listener=self.listener.fileno()
        )
        self.front = _start([*FRONT, *wiring.to_argv()], fds=(*wiring.pipes, status_end, wiring.listener))
        for pair in pairs:
            for end in pair:
                end.close()
        os.close(status_end)
        self._pidfds = {name: os.pidfd_open(child.pid) for name, child in self._children()}

    def watch(self, *, stop: int, ready_file: Path | None) -> int:
        """Wait for the next event and act on it, until one ends the engine; returns the exit code."""
        waiting = select.poll()
        for descriptor in (stop, self.status, *self._pidfds.values()):
            waiting.register(descriptor, select.POLLIN)
        while True:
            events = dict(waiting.poll())
            # A process that ends writes its report first, so reports are read before deaths are looked at.
            for report in self._read_reports():
                if "refused" in report:
                    raise UsageError(report["refused"])
                if "died" in report:
                    return self._died(report["died"], report["how"])
                self._announce(report["ready"], ready_file=ready_file)
            if stop in events:
                self.stop()
                return 0
            for name, descriptor in self._pidfds.items():
                if descriptor in events:
                    return self._died(name, self._how(name))
            if self.status in events and not events[self.status] & select.POLLIN:
                waiting.unregister(self.status)

    def stop(self) -> None:
        """The clean way: let the front finish its answers for a moment. Ranks have nothing worth saving."""
        dict(self._children())["front"].terminate()
        front_end = select.poll()
        front_end.register(self._pidfds["front"], select.POLLIN)
        front_end.poll(STOP_GRACE_S * 1000)

    def kill(self) -> None:
        """Kill and reap all that is left. Ranks die with their zygote, and become this process's children."""
        for _, child in self._children():
            child.kill()
            child.wait()
        reap_all()
        for descriptor in (*self._pidfds.values(), self.status):
            if descriptor >= 0:
                os.close(descriptor)
        self._pidfds, self.status = {}, -1

    def _children(self) -> list[tuple[str, subprocess.Popen[bytes]]]:
        both = [("zygote", self.zygote), ("front", self.front)]
        return [(name, child) for name, child in both if child is not None]

    def _how(self, name: str) -> str:
        child = dict(self._children())[name]
        code = child.wait()
        return describe_end(-code if code < 0 else code << 8)

    def _died(self, who: str, how: str) -> int:
        print(f"engine died: {who} {how}", file=sys.stderr, flush=True)
        return EXIT_DIED

    def _announce(self, pids: dict[str, Any], *, ready_file: Path | None) -> None:
        """Tell whoever started this process; `pids` are those of the front and of the ranks in order."""
        children = {name: child.pid for name, child in self._children()}
        all_pids = {"launcher": os.getpid(), **children, **pids}
        announce(self.url, nonce=self.config.nonce, pids=all_pids, ready_file=ready_file)

    def _read_reports(self) -> Iterator[dict[str, Any]]:
        while True:
            try:
                piece = os.read(self.status, 65536)
            except BlockingIOError:
                break
            if not piece:
                break
            self._unread += piece
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            yield json.loads(line)


def _refuse_early(config: EngineConfig, *, ready_file: Path | None) -> None:
    """What can be known to fail before any process exists. Raises UsageError."""
    if sys.platform != "linux":
        raise UsageError(f"the engine's processes need Linux (prctl, pidfd), found {sys.platform}")
    check_model_topology(resolve_model(config.model).config, config.parallel())
    if config.disaggregation_mode is not DisaggregationMode.NULL:
        check_backend(config.disaggregation_transfer_backend)
    if config.comm is CommBackend.THREADS:
        raise UsageError("--comm threads is for tests inside one process; a launch takes shm, gloo or nccl")
    if config.attention_backend is AttentionBackend.TRITON:
        require_triton()
    check_ready_file(ready_file)


@contextmanager
def _stop_signals() -> Iterator[int]:
    """A descriptor that becomes readable on SIGTERM or SIGINT."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    before_fd = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    try:
        yield read_end
    finally:
        signal.set_wakeup_fd(before_fd)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(read_end)
        os.close(write_end)


def _start(argv: Sequence[str], *, fds: Sequence[int]) -> subprocess.Popen[bytes]:
    """A child that inherits `fds`, writes to stderr only (stdout is for the ready line), and dies with us."""
    parent = os.getpid()
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=_STDERR,
        pass_fds=fds,
        # One thread a rank: on few cores, more of them spin against each other (24 times slower on two).
        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        preexec_fn=lambda: die_with_parent(parent),
    )
