"""A contained tree: the supervisor's end of the control socket to `init.py`, and the pidfd of that init.

Phases: `launch` starts the init, looks up pids at its gate, lets the command go; then the caller polls,
asks, kills. The init's end is the tree's end in both modes: in a PID namespace because the kernel reaps
the whole namespace before its PID 1 turns zombie, with a guard because it leaves last.

Failure rule: `launch` either returns a running command or raises, having left no process behind.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.containment.base import Ended
from harness.containment.proc import catches, children_of, descendants_of
from harness.errors import HarnessError, InfraError, UsageError

INIT = Path(__file__).with_name("init.py")

# An init starts in about 0.05 s; on a machine where this is not enough, a job could not run either.
START_SECONDS = 60.0

# SIGKILL is instant except for a process stuck in the kernel (a wedged driver, dead network storage).
KILL_SECONDS = 30.0

# The errors of fork and exec that speak of the machine, not of the command.
MACHINE_ERRNOS = frozenset({errno.ENOMEM, errno.EAGAIN, errno.ENOSPC, errno.EMFILE, errno.ENFILE})


class Tree:
    """See `base.Contained`. `outer` is the process started here; the init is itself or its only child."""

    def __init__(
        self, *, outer: subprocess.Popen[bytes], control: socket.socket, init: int, pid: int
    ) -> None:
        self._outer = outer
        self._control = control
        self._init = init
        self._pid = pid
        self._pidfd = os.pidfd_open(init)
        self._ended: Ended | None = None

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def pidfd(self) -> int:
        return self._pidfd

    def poll(self) -> Ended | None:
        return self.wait(timeout=0)

    def wait(self, timeout: float | None = None) -> Ended | None:
        if self._ended is None and self._init_ended(timeout):
            self._outer.send_signal(signal.SIGCONT)  # stopped by someone, it would be waited for in vain
            code = self._outer.wait()  # at most a moment: its only child has ended, or it has itself
            self._ended = self._read_end(code)
            self._control.close()
        return self._ended

    def ask_to_stop(self) -> None:
        if self._ended is None:
            with contextlib.suppress(OSError):  # the init may have left at this very moment
                # As a service manager does it: a stopped process gets its SIGTERM only once it continues.
                self._control.send(bytes([signal.SIGTERM, signal.SIGCONT]))
            self._signal_init(signal.SIGCONT)

    def kill(self) -> None:
        if self._ended is None:
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_WR)
            self._end_init()

    def _end_init(self) -> None:
        """A guard ends the tree itself once its control socket is shut, unless someone has stopped it."""
        self._signal_init(signal.SIGCONT)

    def _signal_init(self, signum: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signum)

    def terminate(self, grace_s: float) -> Ended:
        self.ask_to_stop()
        ended = self.wait(grace_s)
        if ended is None:
            self.kill()
            ended = self.wait(KILL_SECONDS)
        if ended is None:
            left = ", ".join(map(str, self.descendants()))
            raise InfraError("containment", f"processes {left} live on {KILL_SECONDS:g} s after SIGKILL")
        return ended

    def descendants(self) -> list[int]:
        return [] if self._ended is not None else descendants_of(self._init)

    def dump_stacks(self) -> list[int]:
        told = [pid for pid in self.descendants() if catches(pid, signal.SIGUSR1)]
        for pid in told:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)
        return told

    def __del__(self) -> None:
        # The kernel's promise must hold without this: it only frees the descriptor of a tree that was let go.
        with contextlib.suppress(OSError, AttributeError):
            os.close(self._pidfd)

    def _init_ended(self, timeout: float | None) -> bool:
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(None if timeout is None else max(0, timeout * 1000)))

    def _read_end(self, outer_code: int) -> Ended:
        """The init's last word; without one it was killed itself, and its signal is the answer."""
        self._control.setblocking(False)
        try:
            words = self._control.recv(4096).decode().split()
        except (BlockingIOError, ConnectionResetError):
            words = []
        if len(words) >= 2:
            code = int(words[-1])
            return Ended(exit_code=code) if words[-2] == "exit" else Ended(signal=code)
        return Ended(signal=-outer_code) if outer_code < 0 else Ended(signal=signal.SIGKILL)


class KernelTree(Tree):
    """A tree in a PID namespace: the kernel kills all of it with its init."""

    def _end_init(self) -> None:
        self._signal_init(signal.SIGKILL)


def launch(
    prefix: Sequence[str],
    argv: Sequence[str],
    *,
    mode: str,
    cwd: Path,
    env: Mapping[str, str],
    stdout: int,
    pass_fds: Sequence[int],
) -> Tree:
    """Start `prefix… python init.py … argv…` and see the command run. Raises as `Containment.spawn` says."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("a containment is spawned from the main thread: death signals follow the thread")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    # -I and -S: neither the job's environment nor its directory may change what the init is.
    command = [*prefix, sys.executable, "-I", "-S", str(INIT), mode, str(theirs.fileno()), *argv]
    with theirs:
        try:
            outer = subprocess.Popen(
                command,
                cwd=cwd,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs.fileno(), *pass_fds),
                start_new_session=True,  # an interrupt from the terminal is for the supervisor to handle
            )
        except OSError as error:
            ours.close()
            raise spawn_error(error.errno, command[0]) from error
    with contextlib.ExitStack() as undo:
        undo.callback(outer.wait)
        undo.callback(outer.kill)
        undo.callback(ours.close)
        tree = _see_it_run(outer, ours, argv=argv, mode=mode)
        undo.pop_all()
    return tree


def _see_it_run(
    outer: subprocess.Popen[bytes], control: socket.socket, *, argv: Sequence[str], mode: str
) -> Tree:
    """The handshake of `init.py`, phases 1 and 2. Any of its processes may be killed at any point of it."""
    control.settimeout(START_SECONDS)
    kind = KernelTree if mode == "pidns" else Tree
    try:
        _expect(control, "ready")
        init = _only_child(outer.pid) if mode == "pidns" else outer.pid
        tree = kind(outer=outer, control=control, init=init, pid=_only_child(init))
        control.send(b"\0")
        word = _expect(control, "started", "errno")
    except TimeoutError as error:
        raise InfraError("containment", f"{mode}: no sign of the init after {START_SECONDS:g} s") from error
    except (ConnectionError, ProcessLookupError) as error:
        raise InfraError(
            "containment", f"{mode}: the init ended before the command ran; see the log"
        ) from error
    if word[0] == "errno":
        raise spawn_error(int(word[1]), argv[0])
    return tree


def _only_child(pid: int) -> int:
    """The one child of that process; ProcessLookupError when it has been killed meanwhile."""
    found = children_of(pid)
    if len(found) != 1:
        raise ProcessLookupError(f"process {pid} has {len(found)} children")
    return found[0]


def _expect(control: socket.socket, *allowed: str) -> list[str]:
    """One line of the init, byte for byte, so that a line after it stays in the socket.

    Raises ConnectionError when the init has left, TimeoutError when it says nothing.
    """
    line = b""
    while not line.endswith(b"\n"):
        byte = control.recv(1)
        if not byte:
            break
        line += byte
    words = line.decode().split()
    if not words or words[0] not in allowed:
        raise ConnectionError(f"expected one of {allowed}, found {line!r}")
    return words


def spawn_error(number: int | None, program: str) -> HarnessError:
    """The typed error for a failed fork or exec of `program`."""
    reason = os.strerror(number or 0)
    if number in MACHINE_ERRNOS:
        return InfraError("spawn", f"{program}: {reason}")
    return UsageError(f"cannot execute {program}: {reason}")
