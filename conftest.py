"""Repository-wide pytest settings. The plugin itself is `harness.pytest_plugin`, installed as an entry point."""

from __future__ import annotations

import os

# One thread a process: ranks, workers and torch share few cores, and threads that fight are far slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")
