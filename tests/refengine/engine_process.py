"""Starts the engine as a user would, as a process of its own, and tells what is left of it."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import httpx

import harness
from harness.refengine.config import EngineConfig

# The command line is the CLI room's; this is the least that does the same.
LAUNCH = """
import json, sys
from pathlib import Path
from harness.errors import HarnessError
from harness.refengine.config import EngineConfig
from harness.refengine.launcher import launch
config, zygote, ready_file = json.loads(sys.argv[1])
ready_file = ready_file and Path(ready_file)
try:
    sys.exit(launch(EngineConfig.from_json(config), zygote_argv=zygote, ready_file=ready_file))
except HarnessError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""
# No test should hang for good; far above what anything here takes, also on a busy machine.
PATIENCE_S = 60


def start(
    config: EngineConfig,
    *,
    stderr: IO[bytes] | int,
    zygote: Sequence[str] | None = None,
    ready_file: Path | None = None,
) -> subprocess.Popen[str]:
    """The launcher process; it imports `harness` from where these tests do."""
    arguments = [config.to_json(), zygote and list(zygote), ready_file and str(ready_file)]
    paths = [
        str(Path(harness.__file__).parents[1]),
        str(Path(__file__).parent),
        os.environ.get("PYTHONPATH", ""),
    ]
    return subprocess.Popen(
        [sys.executable, "-c", LAUNCH, json.dumps(arguments)],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )


@dataclass
class RunningEngine:
    """A ready engine. `pids` are those of launcher, zygote, front, and ranks in order."""

    process: subprocess.Popen[str]
    url: str
    pids: dict[str, Any]
    log: Path
    http: httpx.Client

    @property
    def all_pids(self) -> list[int]:
        return [self.pids["launcher"], self.pids["zygote"], self.pids["front"], *self.pids["ranks"]]

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def generate(self, prompt: str | list[Any], **params: Any) -> Any:
        """`/generate`, greedy with log-probabilities unless told otherwise; returns the answer's JSON."""
        body = generate_body(prompt, **params)
        response = self.http.post("/generate", json=body)
        assert response.status_code == 200, response.text
        return response.json()

    def info(self) -> Any:
        return self.http.get("/server_info").json()

    def rows(self) -> Any:
        return self.http.get("/kv_rows").json()


def generate_body(
    prompt: str | list[Any], *, stream: bool = False, rid: str | None = None, **params: Any
) -> dict[str, Any]:
    sampling = {"temperature": 0.0, "ignore_eos": True, **params}
    source = {"text": prompt} if isinstance(prompt, str) else {"input_ids": prompt}
    body = {**source, "sampling_params": sampling, "return_logprob": True, "stream": stream}
    return body if rid is None else {**body, "rid": rid}


@contextmanager
def running(
    config: EngineConfig, *, directory: Path, zygote: Sequence[str] | None = None
) -> Iterator[RunningEngine]:
    """A ready engine, and none afterwards. Its stderr goes to `directory`/engine.log."""
    log, ready_file = directory / "engine.log", directory / "ready.json"
    with log.open("wb") as sink:
        process = start(config, stderr=sink, zygote=zygote, ready_file=ready_file)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("ready http://"), log.read_text()
        told = json.loads(ready_file.read_text())
        assert line.split() == ["ready", told["url"], f"nonce={told['nonce']}", f"pid={process.pid}"]
        with httpx.Client(base_url=told["url"], timeout=PATIENCE_S, trust_env=False) as http:
            yield RunningEngine(process=process, url=told["url"], pids=told["pids"], log=log, http=http)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)
        process.stdout.close()


def alive(pids: Sequence[int]) -> list[int]:
    """Those that still run; a zombie does not."""
    found = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state not in "ZX":
            found.append(pid)
    return found


def wait_gone(pids: Sequence[int], *, seconds: float) -> list[int]:
    """Wait until none of them runs, through their pidfds; returns those that still do."""
    waiting = select.poll()
    left = {}
    for pid in pids:
        try:
            left[os.pidfd_open(pid)] = pid
        except ProcessLookupError:
            continue
    for fd in left:
        waiting.register(fd, select.POLLIN)
    while left:
        events = waiting.poll(seconds * 1000)
        if not events:
            break
        for fd, _ in events:
            waiting.unregister(fd)
            os.close(fd)
            del left[fd]
    for fd in left:
        os.close(fd)
    return alive(list(left.values()))


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
