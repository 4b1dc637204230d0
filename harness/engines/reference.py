"""The reference engine as a child process: launch → ready → client → stop.

Phases: the command line is made from the suite's engine arguments; the child prints one `ready` line; the
nonce in `/server_info` proves that the server answering is the one started here. A child that ends or stays
silent past the launch deadline raises EngineLaunchError / DeadlineError with its last log lines. The child
dies with this process, so nothing has to be cleaned up after a crash.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from harness.containment import Deadline
from harness.containment.death import die_with_parent
from harness.containment.proc import catches, descendants_of
from harness.engines.arguments import LaunchSpec, engine_flags
from harness.engines.client import EngineClient
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


class ReferenceEngine:
    """A running reference engine. Use `launch`, and `stop` in a finally."""

    def __init__(self, process: subprocess.Popen[bytes], *, spec: LaunchSpec, url: str, log: Path) -> None:
        self.spec = spec
        self.log = log
        self._process = process
        self.client = EngineClient(url, why_dead=self.why_dead)

    @classmethod
    def launch(cls, spec: LaunchSpec, *, log: Path) -> ReferenceEngine:
        """Start and wait until every rank answers. Raises EngineLaunchError or DeadlineError('launch')."""
        nonce = secrets.token_hex(8)
        deadline = Deadline(scope="launch", seconds=spec.launch_timeout_s, clock=time.monotonic)
        with log.open("ab") as sink:
            process = subprocess.Popen(
                _command(spec, nonce=nonce),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=sink,
                env={**os.environ, **spec.env},
                preexec_fn=die_with_parent,
            )
        try:
            url = _wait_ready(process, deadline=deadline, log=log)
            engine = cls(process, spec=spec, url=url, log=log)
            with engine.client.deadline("launch", max(deadline.remaining(), 0.001)):
                found = engine.client.server_info().nonce
            if found != nonce:
                raise EngineLaunchError(f"another server answers at {url}: nonce {found!r} is not {nonce!r}")
        except BaseException as error:
            if isinstance(error, DeadlineError):
                _dump_stacks(process, log=log)
            _end(process)
            raise
        return engine

    def stop(self) -> int:
        """End the engine and all its processes; returns the launcher's exit code."""
        self.client.close()
        return _end(self._process)

    def why_dead(self) -> str:
        """What ended the engine, in its launcher's words; empty while it lives."""
        try:
            code = self._process.wait(timeout=LAST_WORDS_S)
        except subprocess.TimeoutExpired:
            return ""
        return _cause(code, self.log)

    def dump_stacks(self) -> None:
        """Have every process of the engine write its stacks to the log; for a deadline that passed."""
        _dump_stacks(self._process, log=self.log)

    def check_alive(self) -> None:
        """Raises EngineDiedError when the engine has already ended."""
        if self._process.poll() is not None:
            raise EngineDiedError(self.why_dead(), detail=log_tail(self.log))


def log_tail(log: Path, *, lines: int = LOG_TAIL_LINES) -> str:
    """The last lines of an engine's log; empty when there is none."""
    if not log.exists():
        return ""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def _command(spec: LaunchSpec, *, nonce: str) -> list[str]:
    parallel = spec.parallel
    flags = ["--tp", str(parallel.tp_size), "--dcp", str(parallel.dcp_size), "--model", spec.model]
    flags += ["--nonce", nonce, *engine_flags(spec.args)]
    for fault in spec.faults:
        flags += ["--fault", fault]
    return [sys.executable, "-m", "harness", "engine", "serve", *flags]


def _wait_ready(process: subprocess.Popen[bytes], *, deadline: Deadline, log: Path) -> str:
    assert process.stdout is not None
    buffer = b""
    while True:
        readable, _, _ = select.select([process.stdout], [], [], max(deadline.remaining(), 0))
        if not readable:
            raise DeadlineError("launch", deadline.seconds)
        piece = os.read(process.stdout.fileno(), 4096)
        buffer += piece
        if not piece:
            said = _cause(process.wait(), log)
            raise EngineLaunchError(f"engine did not start: {said}", detail=log_tail(log))
        *lines, buffer = buffer.split(b"\n")
        for line in lines:
            if found := READY.match(line.decode(errors="replace")):
                return found["url"]


def _dump_stacks(process: subprocess.Popen[bytes], *, log: Path) -> None:
    """SIGUSR1 to those that catch it (faulthandler), then wait for what they write."""
    before = log.stat().st_size
    for pid in (process.pid, *descendants_of(process.pid)):
        if catches(pid, signal.SIGUSR1):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)
    # Nobody tells when a signal handler of another process is done: look until the log rests.
    end = time.monotonic() + STACKS_S
    size = -1
    while time.monotonic() < end and (size != log.stat().st_size or size == before):
        size = log.stat().st_size
        time.sleep(STACKS_REST_S)


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


def _end(process: subprocess.Popen[bytes]) -> int:
    process.terminate()
    try:
        code = process.wait(timeout=STOP_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    if process.stdout is not None:
        process.stdout.close()
    return code
