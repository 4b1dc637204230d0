"""Runs the real `harness` command in a process of its own, as a user or a script would."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What the command left."""

    code: int
    out: str
    err: str

    @property
    def told(self) -> str:
        return self.out + self.err


def harness(*args: str, cwd: Path = ROOT, reports: Path | None = None, **env: str) -> Done:
    """Run `harness ARGS` to its end; `reports` keeps its runs out of the checkout."""
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200", "PYTHONPATH": str(ROOT), **env}
    if reports is not None:
        environment["HARNESS_REPORTS"] = str(reports)
    done = subprocess.run(
        [sys.executable, "-m", "harness", *args],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return Done(code=done.returncode, out=done.stdout, err=done.stderr)


def assert_usage_error(done: Done, *words: str) -> None:
    """Exit 2, no traceback, and every word told."""
    assert done.code == 2, done.told
    assert "Traceback" not in done.told
    for word in words:
        assert word in done.told, f"{word!r} not in {done.told!r}"
