"""The real `harness run` on a catalogue of its own, started, watched from outside, and looked at afterwards."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.containment.proc import descendants_of, read_process

ROOT = Path(__file__).resolve().parents[2]
# Bounds a wait for an event that comes in a second or two when all is well; never a claim about speed.
PATIENCE_S = 120.0

SUITE = """
summary: a two-rank engine with enough to do
tags: [smoke]
profiles:
  cpu:
    needs: {{cpu: 1}}
    estimate: {estimate}
    timeout: {timeout}
    engine:
      kind: reference
      model: builtin:random-gqa
      parallel: {{tp: 2, dcp: 2}}
      args: {{page-size: 4, kv-bytes: 131072}}
      launch_timeout: {launch}
baseline: {{parallel: {{dcp: 1}}}}
checks: {checks}
"""

POOLS = "pools:\n  cpu: {executor: local, slots: 2}\n"

QUICK = "[active: {dcp: 2}, parity: {lengths: [1, 5], max_new_tokens: 4}, drained: {}]"
# Minutes of work, so that whatever is killed is killed in the middle of it.
LENGTHS = list(range(1, 100))
LONG = f"[active: {{dcp: 2}}, parity: {{lengths: {LENGTHS}, max_new_tokens: 200}}]"


@dataclass(slots=True, kw_only=True)
class World:
    """A folder with suites, pools and reports."""

    folder: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def reports(self) -> Path:
        return self.folder / "reports"

    def suite(
        self,
        name: str,
        *,
        checks: str = QUICK,
        estimate: str = "10s",
        timeout: str = "5m",
        launch: str = "60s",
    ) -> None:
        file = self.folder / "suites" / f"{name}.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(SUITE.format(checks=checks, estimate=estimate, timeout=timeout, launch=launch))
        (self.folder / "pools.yaml").write_text(POOLS)

    def start(self, *args: str, **env: str) -> subprocess.Popen[str]:
        """`harness ARGS` in this world; it is killed at the end of the test if it still runs."""
        process = subprocess.Popen(
            [sys.executable, "-m", "harness", *args],
            cwd=self.folder,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "HARNESS_REPORTS": str(self.reports),
                "HARNESS_POOLS": str(self.folder / "pools.yaml"),
                "NO_COLOR": "1",
                **env,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def run(self, *args: str, **env: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of `harness ARGS`."""
        process = self.start(*args, **env)
        out, err = process.communicate()
        return process.returncode, out, err

    def shown(self, run: str = "latest") -> dict[str, Any]:
        """`harness show RUN --json`."""
        code, out, err = self.run("show", run, "--json")
        assert code == 0, err
        shown: dict[str, Any] = json.loads(out)
        return shown

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until `condition` holds; fails the test, naming `what`, when it does not in any reasonable time."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"never came: {what}"
        select.select([], [], [], 0.02)


def titles(root: int) -> dict[int, str]:
    """Living descendants of a process, by pid: what ps calls them."""
    found = {}
    for pid in descendants_of(root):
        try:
            found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def the_one(root: int, words: str) -> int | None:
    """The first descendant whose title holds `words`; None while there is none."""
    return next((pid for pid, title in titles(root).items() if words in title), None)


def gone(pids: list[int]) -> bool:
    rows = [read_process(pid) for pid in pids]
    return not any(row is not None and row.living for row in rows)


def listening_ports(pids: list[int]) -> set[str]:
    """Inodes of listening TCP sockets that these processes hold."""
    listening = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] == "0A":
                listening.add(columns[9])
    held = set()
    for pid in pids:
        try:
            links = [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()]
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        held |= {link[8:-1] for link in links if link.startswith("socket:[")}
    return held & listening


def all_listening() -> set[str]:
    """Inodes of every listening TCP socket of the machine."""
    return {
        line.split()[9]
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        for line in Path(table).read_text().splitlines()[1:]
        if line.split()[3] == "0A"
    }
