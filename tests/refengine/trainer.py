"""The trainer as tests use it: its modules importable, its command run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"
# The trainer is no part of the installed package.
sys.path.insert(0, str(TOOLS))


def run_trainer(out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOLS / "train_reference.py"), "--out", str(out), *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
