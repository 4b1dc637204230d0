"""A server of ours as a child process: its command, its one `ready` line, its log, and what ended it.

The reference engine and the router start alike, so both are this. A child that ends or stays silent past the
launch deadline raises EngineLaunchError / DeadlineError with its last log lines. The child dies with this
process, so nothing has to be cleaned up after a crash.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.containment import Deadline
from harness.containment.death import die_with_parent
from harness.containment.proc import catches, descendants_of
from harness.errors import DeadlineError, EngineDiedError, EngineLaunchError

# SIGTERM lets the launcher reap its ranks; it answers within 2 s or is killed.
STOP_GRACE_S = 5.0
# A launcher sees the death of a rank at once; this bounds the wait for its last words.
LAST_WORDS_S = 3.0
LOG_TAIL_LINES = 15
# faulthandler writes within milliseconds; a busy machine and a stopped rank must not cost the report more.
STACKS_S = 1.0
STACKS_REST_S = 0.1
# How the launcher begins the one line that says which process of its group ended, and how.
DIED = "engine died: "
READY = re.compile(r"^ready (?P<url>http://\S+)")


class Child:
    """One running server. `what` is its word in messages: `engine`, `router`."""

    def __init__(self, argv: Sequence[str], *, what: str, env: Mapping[str, str], log: Path) -> None:
        """Start it. Call this from a thread that lives as long as the child should."""
        self.what = what
        self.log = log
        with log.open("ab") as sink:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=sink,
                env={**os.environ, **env},
                preexec_fn=die_with_parent,
            )
        self._end = os.pidfd_open(self._process.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it has ended already; never waits."""
        # Not by Popen.poll, which says that it lives while another thread is asking.
        return self._process.returncode is not None or _wait_any([self._end], seconds=0)

    def wait_ready(self, deadline: Deadline) -> str:
        """The address of its ready line. Raises DeadlineError or EngineLaunchError."""
        assert self._process.stdout is not None
        buffer = b""
        while True:
            readable, _, _ = select.select([self._process.stdout], [], [], max(deadline.remaining(), 0))
            if not readable:
                raise DeadlineError(deadline.scope, deadline.seconds)
            piece = os.read(self._process.stdout.fileno(), 4096)
            buffer += piece
            if not piece:
                said = _cause(self._process.wait(), self.log)
                raise EngineLaunchError(f"{self.what} did not start: {said}", detail=log_tail(self.log))
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                if found := READY.match(line.decode(errors="replace")):
                    return found["url"]

    def why_dead(self) -> str:
        """What ended it, in its launcher's words; empty while it lives."""
        return _cause(self._process.wait(), self.log) if first_ended([self]) else ""

    def check_alive(self) -> None:
        """Raises EngineDiedError when it has already ended."""
        if self.ended:
            raise EngineDiedError(self.why_dead(), detail=log_tail(self.log))

    def dump_stacks(self) -> None:
        """SIGUSR1 to those of its processes that catch it (faulthandler), then wait for what they write."""
        before = self.log.stat().st_size
        for pid in (self.pid, *descendants_of(self.pid)):
            if catches(pid, signal.SIGUSR1):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGUSR1)
        # Nobody tells when a signal handler of another process is done: look until the log rests.
        end = time.monotonic() + STACKS_S
        size = -1
        while time.monotonic() < end and (size != self.log.stat().st_size or size == before):
            size = self.log.stat().st_size
            time.sleep(STACKS_REST_S)

    def kill(self) -> None:
        """SIGKILL, and wait until all its processes are gone, and their port is free: for those who want to see
        what others make of it."""
        with contextlib.ExitStack() as closing:
            ends = [self._end]
            for pid in descendants_of(self.pid):
                with contextlib.suppress(ProcessLookupError):
                    ends.append(os.pidfd_open(pid))
                    closing.callback(os.close, ends[-1])
            self._process.kill()
            for end in ends:
                _wait_any([end])

    def stop(self) -> int:
        """End it and all its processes; returns its exit code. Safe to call twice."""
        self._process.terminate()
        try:
            code = self._process.wait(timeout=STOP_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if self._process.stdout is not None and not self._process.stdout.closed:
            self._process.stdout.close()
            os.close(self._end)
        return code


def first_ended(children: Sequence[Child], *, seconds: float = LAST_WORDS_S) -> list[Child]:
    """Those that have ended, as soon as one has; empty when none does within `seconds`."""
    if not any(child.ended for child in children):
        _wait_any([child._end for child in children], seconds=seconds)
    return [child for child in children if child.ended]


def _wait_any(ends: Sequence[int], *, seconds: float | None = None) -> bool:
    """Until one of these pidfds says that its process has ended; False where none has within `seconds`."""
    waiting = select.poll()
    for end in ends:
        waiting.register(end, select.POLLIN)
    return bool(waiting.poll(None if seconds is None else 1000 * seconds))


def log_tail(log: Path, *, lines: int = LOG_TAIL_LINES) -> str:
    """The last lines of a log; empty when there is none."""
    if not log.exists():
        return ""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def _cause(code: int, log: Path) -> str:
    """What ended the launcher: its own line about a process of its group, else how it ended itself."""
    if code < 0:
        return f"its launcher was killed by {signal.Signals(-code).name}"
    lines = [line for line in log_tail(log).splitlines() if line.strip()]
    for line in reversed(lines):
        if line.startswith(DIED):
            return line.removeprefix(DIED)
    last = f": {lines[-1]}" if lines else ""
    return f"its launcher ended with exit code {code}{last}"
