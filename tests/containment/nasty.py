"""A process tree that does everything to get away. Run as a script: `nasty.py READY_FILE`.

Seven processes: the main one, two plain workers, a worker in its own session, a double-forked daemon, that
daemon's child in a session of its own, and a double-forked daemon with an empty environment. All ignore
SIGTERM. The main one writes READY_FILE when all of them run, by name so that a reader sees all or nothing.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

NUMBER_OF_PROCESSES = 7


def stay(ready: int) -> None:
    """Tell that this process runs, then wait for ever; never returns."""
    os.write(ready, b"r")
    os.close(ready)
    while True:
        signal.pause()


def worker(ready: int, *, session: bool) -> None:
    if os.fork() == 0:
        if session:
            os.setsid()
        stay(ready)


def daemon(ready: int, *, grandchild: bool) -> None:
    """Double fork: the middle process ends, so that the daemon is an orphan."""
    middle = os.fork()
    if middle == 0:
        os.setsid()
        if os.fork() == 0:
            if grandchild:
                worker(ready, session=True)
            stay(ready)
        os._exit(0)
    os.waitpid(middle, 0)


def daemon_without_environment(ready: int) -> None:
    middle = os.fork()
    if middle == 0:
        os.setsid()
        if os.fork() == 0:
            os.set_inheritable(ready, True)
            code = (
                "import os, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
                f"os.write({ready}, b'r'); os.close({ready}); signal.pause()"
            )
            os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", code], {})
        os._exit(0)
    os.waitpid(middle, 0)


def main(ready_file: Path) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    counting, ready = os.pipe()
    worker(ready, session=False)
    worker(ready, session=False)
    worker(ready, session=True)
    daemon(ready, grandchild=True)
    daemon_without_environment(ready)
    os.close(ready)
    seen = b""
    while chunk := os.read(counting, 16):  # end of file when all have told, each having closed its copy
        seen += chunk
    assert len(seen) == NUMBER_OF_PROCESSES - 1, seen
    draft = ready_file.with_suffix(".draft")
    draft.write_text("ready")
    draft.rename(ready_file)
    while True:
        signal.pause()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
