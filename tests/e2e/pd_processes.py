"""Prefill, decode and router as a user starts them from the command line: three processes that know each other by URL.

`Trio` starts them, kills what it is told to, starts it again at the same port, and tells what is left. Nothing in here
knows how they do their work.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import httpx
from runs import PATIENCE_S, ROOT, gone, until

from harness.containment.proc import descendants_of

# The router's own limit for a request: far beyond what one takes here, and well within the patience of a test.
REQUEST_TIMEOUT_S = 60


class Victim(StrEnum):
    """What is killed; an engine's name is that of its launcher."""

    PREFILL = "prefill launcher"
    PREFILL_RANK = "prefill rank"
    DECODE = "decode launcher"
    DECODE_RANK = "decode rank"
    ROUTER = "router"

    @property
    def part(self) -> str:
        """The process group that goes with it."""
        return self.value.split()[0]


@dataclass(slots=True, kw_only=True)
class Part:
    """One of the three: its command, and the process that runs it now."""

    name: str
    folder: Path
    words: list[str]
    port: int = 0
    process: subprocess.Popen[str] | None = None
    pids: dict[str, Any] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    def start(self) -> None:
        """At the port of the time before; returns at once."""
        self._ready_file.unlink(missing_ok=True)
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "harness", "engine", *self.words, "--port", str(self.port),
                 "--ready-file", str(self._ready_file)],
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "OMP_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )  # fmt: skip

    def wait_ready(self) -> None:
        assert self.process is not None and self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], PATIENCE_S)
        line = self.process.stdout.readline() if readable else ""
        assert line.startswith("ready "), f"{self.name}: {line!r}\n{self.log.read_text()}"
        told = json.loads(self._ready_file.read_text())
        self.pids, self.port = told["pids"], int(told["url"].rpartition(":")[2])

    def tree(self) -> list[int]:
        assert self.process is not None
        return [self.process.pid, *descendants_of(self.process.pid)]

    def end(self) -> int:
        """Told to stop, if it still runs; the exit code."""
        assert self.process is not None and self.process.stdout is not None
        self.process.terminate()
        code = self.process.wait(PATIENCE_S)
        self.process.stdout.close()
        return code

    @property
    def _ready_file(self) -> Path:
        return self.folder / f"{self.name}.json"


class Trio:
    """A pair and its router."""

    def __init__(
        self,
        folder: Path,
        *,
        prefill: Sequence[str],
        decode: Sequence[str],
        request_timeout: int = REQUEST_TIMEOUT_S,
    ) -> None:
        self.engines = {
            "prefill": _engine(folder, "prefill", prefill),
            "decode": _engine(folder, "decode", decode),
        }
        for part in self.engines.values():
            part.start()
        for part in self.engines.values():
            part.wait_ready()
        sides = [word for name, part in self.engines.items() for word in (f"--{name}", part.url)]
        words = ["route", *sides, "--request-timeout", str(request_timeout)]
        self.router = Part(name="router", folder=folder, words=words)
        self.router.start()
        self.router.wait_ready()
        self.parts = {**self.engines, "router": self.router}
        limits = httpx.Limits(max_connections=None)
        self.http = httpx.Client(timeout=PATIENCE_S, limits=limits, trust_env=False)

    def kill(self, victim: Victim) -> None:
        """kill -9, and wait until all that goes with it is gone."""
        part = self.parts[victim.part]
        assert part.process is not None and part.process.stdout is not None
        tree = part.tree()
        os.kill(part.pids["ranks"][-1] if victim.value.endswith("rank") else part.process.pid, signal.SIGKILL)
        part.process.wait(PATIENCE_S)
        part.process.stdout.close()
        until(lambda: gone(tree), f"every process of the {part.name} ends")

    def restart(self, *victims: Victim) -> None:
        for victim in victims:
            self.parts[victim.part].start()
        for victim in victims:
            self.parts[victim.part].wait_ready()

    def info(self, name: str) -> dict[str, Any]:
        """`/server_info` of one engine."""
        found: dict[str, Any] = self.http.get(f"{self.engines[name].url}/server_info").json()
        return found

    def wait_drained(self, name: str) -> None:
        """Ask until the engine holds nothing; then every row must be free and as it was before any request."""
        last: list[dict[str, Any]] = []

        def idle() -> bool:
            last[:] = [self.info(name)]
            return not _busy(last[0])

        try:
            until(idle, f"the {name} engine holds nothing")
        except AssertionError as error:
            raise AssertionError(f"{error}: {_held(last[0])}") from None
        rows = self.http.get(f"{self.engines[name].url}/kv_rows").json()
        assert rows["requests"] == []
        for rank, told in zip(rows["ranks"], last[0]["ranks"], strict=True):
            assert rank["rows"] == []
            assert rank["free_rows"] == told["kv_rows"]
            assert rank["free_rows_poisoned"]

    def close(self) -> dict[str, int]:
        """Tell all that run to stop, the router first; exit codes by name."""
        self.http.close()
        running = {
            name: part
            for name, part in reversed(self.parts.items())
            if part.process is not None and part.process.poll() is None
        }
        return {name: part.end() for name, part in running.items()}


def _engine(folder: Path, mode: str, words: Sequence[str]) -> Part:
    return Part(name=mode, folder=folder, words=["serve", "--disaggregation-mode", mode, *words])


def _busy(info: dict[str, Any]) -> bool:
    return bool(info["running"] or info["waiting"] or any(rank["transfer"]["open"] for rank in info["ranks"]))


def _held(info: dict[str, Any]) -> str:
    open_rooms = [rank["transfer"]["open"] for rank in info["ranks"]]
    return f"{info['running']} running, {info['waiting']} waiting, open rooms by rank {open_rooms}"


def moved(info: dict[str, Any], what: str) -> int:
    """Bytes of KV that all ranks of an engine have `sent` or `received` since it started."""
    return sum(rank["transfer"][f"bytes_{what}"] for rank in info["ranks"])


def listening(port: int) -> bool:
    """Whether anything of this machine listens at the port."""
    wanted = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] == "0A" and columns[1].endswith(wanted):
                return True
    return False


@dataclass(slots=True)
class Outcome:
    """How one request ended, as its client saw it: token ids, an error's words, or a connection that broke."""

    answer: list[int] | None = None
    error: str | None = None
    status: int | None = None
    broken: str | None = None
    events: int = 0


def ask(trio: Trio, body: dict[str, Any], saw: Callable[[int], None]) -> Outcome:
    """Send one request through the router and read it to its end; `saw` is told how many events have come."""
    url = f"{trio.router.url}/generate"
    try:
        if body.get("stream"):
            return _stream(trio, url, body, saw)
        response = trio.http.post(url, json=body)
        return _whole(response.status_code, response.json())
    except httpx.TransportError as error:
        return Outcome(broken=f"{type(error).__name__}: {error}")


def _stream(trio: Trio, url: str, body: dict[str, Any], saw: Callable[[int], None]) -> Outcome:
    with trio.http.stream("POST", url, json=body) as response:
        if response.status_code != 200:
            return _whole(response.status_code, json.loads(response.read()))
        last, events, done = None, 0, False
        for line in response.iter_lines():
            if line == "data: [DONE]":
                done = True
            elif line.startswith("data: "):
                last, events = json.loads(line[6:]), events + 1
                saw(events)
        if last is not None and "error" in last:
            return _whole(int(last["error"]["code"]), last, events=events)
        assert done, f"a stream ended after {events} events without [DONE] and without an error: {last}"
        assert last is not None
        return _whole(200, last, events=events)


def _whole(status: int, told: dict[str, Any], *, events: int = 0) -> Outcome:
    if status == 200:
        assert told["meta_info"]["finish_reason"] is not None, told
        return Outcome(answer=told["output_ids"], status=status, events=events)
    return Outcome(error=told["error"]["message"], status=status, events=events)
