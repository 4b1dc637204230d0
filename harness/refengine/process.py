"""What every process of the engine does to itself: a name, a way to die with its parent, stack dumps.

The engine lives and dies as a group. Each process asks the kernel for SIGKILL when its parent ends
(PR_SET_PDEATHSIG), the launcher adopts orphans (PR_SET_CHILD_SUBREAPER) so that it can reap all of them, and
no process needs to run any code for the others to be cleaned up. Linux only; the launcher says so elsewhere.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal

from setproctitle import setproctitle

# linux/prctl.h
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value}) failed")


def die_with_parent(parent: int) -> None:
    """Be killed when process `parent` ends, at once if it has ended already. Called first in a child.

    The kernel ties this to the parent's *thread* that started the child: start children from the main thread.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, so that this process can wait for them."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def introduce(title: str) -> None:
    """Name this process in ps, and write all stacks to stderr on SIGUSR1.

    SIGINT of a terminal reaches the whole foreground group; only the launcher acts on it, so it is ignored
    here.
    """
    setproctitle(f"harness-engine {title}")
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def describe_end(wait_status: int) -> str:
    """ "was killed by SIGKILL" or "exited with code 3", from a status of waitpid."""
    if os.WIFSIGNALED(wait_status):
        number = os.WTERMSIG(wait_status)
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        return f"was killed by {name}"
    return f"exited with code {os.waitstatus_to_exitcode(wait_status)}"


def reap_all() -> None:
    """Wait for every child, adopted ones included. The caller has seen to it that all of them end."""
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return
