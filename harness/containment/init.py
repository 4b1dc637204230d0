"""The first process inside a containment: starts one command, reaps, ends the tree with it.

Run by path as `python -I -S init.py MODE CONTROL_FD COMMAND...`, so it may use the standard library only
and never imports harness. MODE is `pidns` (this is PID 1 of a PID namespace: when it exits, the kernel
kills all the rest) or `guard` (an ordinary process made subreaper: it kills the rest itself).

Phases, as the supervisor sees them on the control socket:
1. `ready`: the command's process exists and waits at a gate, so that its pid can be looked up.
2. `started`, or `errno N` when the command cannot be executed. Then this process ends.
3. From then on each byte received is a signal number for the command; end of file means that the
   supervisor wants the tree gone, or is gone itself.
4. `exit N` or `signal N`: how the command ended, told truthfully (an exit code of 137 is not a SIGKILL).

Failure rule: whatever breaks here ends this process, and with it the tree.
"""

from __future__ import annotations

import os
import select
import signal
import sys

# From <linux/prctl.h>.
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

# What a user or a service manager sends to end a program; passed on, since it was meant for the command.
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


def prctl(option: int, value: int) -> None:
    """One prctl call. ctypes is imported here because only guard mode pays for it."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value}) failed")


def say(control: int, line: str) -> None:
    """Tell the supervisor; it may be dead, which is noticed as end of file elsewhere."""
    try:
        os.write(control, line.encode() + b"\n")
    except (BrokenPipeError, ConnectionResetError):
        return


def become_command(gate: int, failure: int, command: list[str], *, guard: int | None) -> None:
    """In the child: wait at the gate, then exec. Returns never; writes the errno when exec fails."""
    try:
        os.setsid()  # so that a killpg inside the job does not reach this init
        if guard is not None:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.read(gate, 1) == b"" or (guard is not None and os.getppid() != guard):
            os._exit(1)
        for signum in (*FORWARDED, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(signum, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.execvp(command[0], command)
    except OSError as error:
        os.write(failure, str(error.errno).encode())
    finally:
        os._exit(127)


def start(control: int, command: list[str], *, guarded: bool) -> int | None:
    """Fork the command and let it go when the supervisor says so. None when it did not come to run."""
    gate_read, gate_write = os.pipe()
    failure_read, failure_write = os.pipe()
    guard = os.getpid() if guarded else None
    child = os.fork()
    if child == 0:
        os.close(gate_write)
        become_command(gate_read, failure_write, command, guard=guard)
    os.close(gate_read)
    os.close(failure_write)
    say(control, "ready")
    if os.read(control, 1) == b"":
        return None
    os.write(gate_write, b"g")
    os.close(gate_write)
    failed = os.read(failure_read, 16)  # end of file once exec closed the other end
    os.close(failure_read)
    say(control, f"errno {failed.decode()}" if failed else "started")
    return None if failed else child


def reap_ready(child: int) -> int | None:
    """Reap every process that ended; the wait status of the command if it is among them."""
    status = None
    while True:
        try:
            pid, reaped = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == child:
            status = reaped


def watch(child: int, control: int, wakeup: int, supervisor: int) -> int | None:
    """Until the command ends (its wait status) or the supervisor wants or needs the tree gone (None)."""
    while True:
        readable, _, _ = select.select([control, wakeup], [], [])
        woken = os.read(wakeup, 512) if wakeup in readable else b""
        signals = [signum for signum in woken if signum != signal.SIGCHLD]
        status = reap_ready(child)
        if status is not None:
            return status
        if os.getppid() != supervisor:
            return None
        if control in readable:
            asked = os.read(control, 64)
            if not asked:
                return None
            signals.extend(asked)
        for signum in signals:
            os.kill(child, signum)


def parents() -> dict[int, int]:
    """pid → parent pid of every process that /proc shows."""
    table = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib costs this small process 10 ms
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                    table[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
    return table


def below(root: int, table: dict[int, int]) -> set[int]:
    """Every pid whose chain of parents reaches `root`."""
    found = {root}
    grown = True
    while grown:
        more = {pid for pid, parent in table.items() if parent in found} - found
        grown = bool(more)
        found |= more
    return found - {root}


def end_tree(child: int, status: int | None) -> int | None:
    """Kill all descendants, to a fixed point; the command's wait status, if it was still to come.

    As subreaper this process inherits every orphan, so "no children" proves "no descendants". Each round
    waits for one of the processes that it has just killed, so it never spins.
    """
    while True:
        for pid in below(os.getpid(), parents()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            pid, reaped = os.waitpid(-1, 0)
        except ChildProcessError:
            return status
        if pid == child:
            status = reaped


def tell_end(control: int, status: int) -> None:
    """Report the command's own end."""
    code = os.waitstatus_to_exitcode(status)
    say(control, f"signal {-code}" if code < 0 else f"exit {code}")


def main(arguments: list[str]) -> int:
    """The whole life of a containment, in order."""
    mode, control, command = arguments[0], int(arguments[1]), arguments[2:]
    os.set_inheritable(control, False)
    supervisor = os.getppid()
    wakeup, wakeup_write = os.pipe()
    os.set_blocking(wakeup, False)
    os.set_blocking(wakeup_write, False)
    for signum in (*FORWARDED, signal.SIGCHLD):
        signal.signal(signum, lambda *_: None)  # a handler is what makes the wakeup fd fire
    signal.set_wakeup_fd(wakeup_write)
    guarded = mode == "guard"
    if guarded:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        # Only wakes `watch`, which then compares parents: the signal also comes when merely a thread ends.
        prctl(PR_SET_PDEATHSIG, signal.SIGCHLD)
    child = start(control, command, guarded=guarded)
    if child is None:
        return 1
    status = watch(child, control, wakeup, supervisor)
    if guarded:
        status = end_tree(child, status)
    if status is not None:
        tell_end(control, status)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
