"""Starts the router as a user would, by its command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from fake_pd_engines import PATIENCE_S, FakeEngine

import harness

ROOT = Path(harness.__file__).parents[1]


def command(engines: Sequence[FakeEngine], *options: str) -> list[str]:
    sides = [part for engine in engines for part in (f"--{engine.side.value}", engine.url)]
    return [sys.executable, "-m", "harness", "engine", "route", *sides, *options]


def start(engines: Sequence[FakeEngine], *options: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(engines, *options),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", **env},
    )


@dataclass
class Router:
    """A ready router. `told` is its stderr, once it has been stopped."""

    process: subprocess.Popen[str]
    url: str
    nonce: str
    http: httpx.Client
    told: str | None = None
    before: dict[str, int] = field(default_factory=dict)

    def generate(self, **fields: Any) -> httpx.Response:
        return self.http.post("/generate", json={"text": "a", **fields})

    def info(self) -> Any:
        return self.http.get("/server_info").json()

    def counters(self) -> dict[str, int]:
        return dict(self.info()["router"]["counters"])

    def counted(self) -> dict[str, int]:
        """What the counters have gained since `before`."""
        return {name: count - self.before.get(name, 0) for name, count in self.counters().items()}

    def stop(self) -> int:
        """Stop it, unless that has been done; its exit code."""
        if self.told is None:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
            _, self.told = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode


@contextmanager
def routed(engines: Sequence[FakeEngine], *options: str) -> Iterator[Router]:
    process = start(engines, *options)
    assert process.stdout is not None and process.stderr is not None
    line = process.stdout.readline()
    assert line.startswith("ready http://"), process.stderr.read()
    _, url, nonce, pid = line.split()
    assert pid == f"pid={process.pid}"
    with httpx.Client(base_url=url, timeout=PATIENCE_S, trust_env=False) as http:
        router = Router(process, url, nonce.removeprefix("nonce="), http)
        try:
            yield router
        finally:
            router.stop()


def events(response: httpx.Response) -> list[Any]:
    """The events of a stream: JSON, or the text of what is none."""
    parts = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    return [part if part == "[DONE]" else json.loads(part) for part in parts]
