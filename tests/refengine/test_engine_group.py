"""The engine lives and dies as a group: kill any process of it, and nothing is left."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_process import PATIENCE_S, RunningEngine, generate_body, listens, running, start, wait_gone

from harness.refengine.config import CommBackend, Device, EngineConfig, StartMethod
from harness.refengine.launcher import EXIT_DIED

# No process of a group may outlive one of it for longer.
GONE_WITHIN_S = 2.0
FOUR = EngineConfig(tp=4, dcp=2)


def victim_pid(engine: RunningEngine, victim: str) -> int:
    if victim.startswith("rank"):
        return int(engine.pids["ranks"][int(victim.split()[1])])
    return int(engine.pids[victim])


def in_flight(engine: RunningEngine) -> socket.socket:
    """A stream that has begun: ranks are in the middle of collectives."""
    body = json.dumps(generate_body("a long answer", stream=True, max_new_tokens=4000)).encode()
    client = socket.create_connection(("127.0.0.1", engine.port), timeout=PATIENCE_S)
    client.sendall(b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
    client.sendall(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    assert b"200" in client.recv(100)
    return client


@pytest.mark.parametrize(
    ("victim", "comm"),
    [
        ("rank 0", CommBackend.SHM),
        ("rank 3", CommBackend.SHM),
        ("rank 3", CommBackend.GLOO),
        ("front", CommBackend.SHM),
        ("zygote", CommBackend.SHM),
    ],
)
def test_a_killed_process_takes_all_with_it_and_is_named(
    victim: str, comm: CommBackend, tmp_path: Path
) -> None:
    config = EngineConfig(tp=4, dcp=2, comm=comm)
    with running(config, directory=tmp_path) as engine:
        client = in_flight(engine)
        os.kill(victim_pid(engine, victim), signal.SIGKILL)
        assert wait_gone(engine.all_pids[1:], seconds=GONE_WITHIN_S) == []
        assert engine.process.wait(GONE_WITHIN_S) == EXIT_DIED
        client.close()
        assert not listens(engine.port)
        told = [line for line in engine.log.read_text().splitlines() if line.startswith("engine died")]
        assert told == [f"engine died: {victim} was killed by SIGKILL"]


@pytest.mark.parametrize("method", list(StartMethod))
def test_a_killed_launcher_takes_all_with_it(method: StartMethod, tmp_path: Path) -> None:
    config = EngineConfig(tp=2, dcp=2, start_method=method)
    with running(config, directory=tmp_path) as engine:
        client = in_flight(engine)
        engine.process.kill()
        assert wait_gone(engine.all_pids, seconds=GONE_WITHIN_S) == []
        client.close()
        assert not listens(engine.port)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_it_stops_cleanly_even_while_it_answers(number: signal.Signals, tmp_path: Path) -> None:
    with running(FOUR, directory=tmp_path) as engine:
        client = in_flight(engine)
        engine.process.send_signal(number)
        assert engine.process.wait(PATIENCE_S) == 0
        assert wait_gone(engine.all_pids, seconds=0) == []
        client.close()
        assert not listens(engine.port)
        assert "engine died" not in engine.log.read_text()


def test_killed_while_it_starts_it_leaves_nothing(tmp_path: Path) -> None:
    """Children are tied to the launcher before they run any code of their own."""
    process = start(FOUR, stderr=subprocess.DEVNULL)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    found: list[int] = []
    while len(found) < 2 and process.poll() is None:
        found = [int(pid) for pid in children.read_text().split()]
    process.kill()
    assert wait_gone(found, seconds=GONE_WITHIN_S) == []
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def test_a_port_in_use_is_a_usage_error_in_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = start(EngineConfig(port=port), stderr=subprocess.PIPE)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert out == ""
    assert err == f"cannot listen on 127.0.0.1:{port}: Address already in use\n"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (EngineConfig(model="builtin:nothing"), "unknown model 'builtin:nothing'"),
        (EngineConfig(tp=16, dcp=2), "has 8 query heads, which tp 16 does not divide"),
        (EngineConfig(kv_bytes=1000), "1000 B"),
        (EngineConfig(comm=CommBackend.THREADS), "--comm threads"),
        (EngineConfig(kv_bytes=10**16, tp=2), "no memory for a KV pool of"),
        (EngineConfig(kv_bytes=10**16, tp=2, start_method=StartMethod.SPAWN), "no memory for a KV pool of"),
        (
            EngineConfig(device=Device.CUDA, comm=CommBackend.NCCL, start_method=StartMethod.SPAWN, tp=8),
            "--comm nccl: ",
        ),
    ],
)
def test_what_cannot_be_started_is_refused_in_one_line(config: EngineConfig, said: str) -> None:
    process = start(config, stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert out == ""
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("place", "said"), [("", "is a directory"), ("missing/ready.json", "there is no directory")]
)
def test_a_ready_file_that_cannot_be_is_refused_before_anything_starts(
    place: str, said: str, tmp_path: Path
) -> None:
    process = start(EngineConfig(), stderr=subprocess.PIPE, ready_file=tmp_path / place)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    with running(FOUR, directory=tmp_path_factory.mktemp("engine")) as engine:
        yield engine


def test_processes_tell_who_they_are(engine: RunningEngine) -> None:
    titles = [Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0") for pid in engine.all_pids]
    assert titles == [
        "harness-engine launcher tp4 dcp2",
        "harness-engine zygote",
        "harness-engine front",
        *[f"harness-engine rank {rank}/4 tp4 dcp2" for rank in range(4)],
    ]


def test_sigusr1_writes_stacks_and_harms_nobody(engine: RunningEngine) -> None:
    for pid in engine.all_pids:
        os.kill(pid, signal.SIGUSR1)
    engine.generate("x", max_new_tokens=2)
    assert engine.log.read_text().count("most recent call first") >= len(engine.all_pids)


def test_nothing_it_uses_has_a_name(engine: RunningEngine) -> None:
    """Shared memory is anonymous, so that even kill -9 of everything leaves no segment behind."""
    engine.generate("x", max_new_tokens=2)
    for pid in engine.all_pids:
        opened = [path.readlink() for path in Path(f"/proc/{pid}/fd").iterdir()]
        mapped = [line.split()[-1] for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
        named = [str(path) for path in (*opened, *mapped)]
        assert not [path for path in named if path.startswith("/dev/shm")]
