"""Repository-wide pytest settings. The plugin itself is `harness.pytest_plugin`, installed as an entry point."""

from __future__ import annotations

import os
import signal

# One thread a process: ranks, workers and torch share few cores, and threads that fight are far slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell that starts a run in the background has it ignore SIGINT, and all that it starts; tests send that signal.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
