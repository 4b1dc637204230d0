"""The router as a process: how it starts, what it refuses, how it ends."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fake_pd_engines import PATIENCE_S, FakeEngine, Hall, hall
from router_process import ROOT, command, routed, start

from harness.errors import UsageError
from harness.refengine.listening import bind, listen, reserve
from harness.refengine.transfer.handshake import refuse_pair
from harness.topology import Side


@pytest.fixture
def place() -> Iterator[Hall]:
    with hall() as one:
        yield one


def run(engines: list[FakeEngine], *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(engines, *options), capture_output=True, text=True, timeout=PATIENCE_S, cwd=ROOT, check=False
    )


def test_the_ready_file_says_what_the_ready_line_says(place: Hall, tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    with routed(place.pair(), "--ready-file", str(ready), "--nonce", "n") as router:
        pid = router.process.pid
        assert json.loads(ready.read_text()) == {
            "url": router.url,
            "pid": pid,
            "nonce": "n",
            "pids": {"router": pid},
        }


def test_a_slash_at_the_end_of_an_address_is_no_part_of_it(place: Hall) -> None:
    prefill, decode = place.pair()
    with routed([], "--prefill", f"{prefill.url}/", "--decode", f"{decode.url}/") as router:
        assert router.generate().status_code == 200
        told = router.info()["pair"]
    assert [told[side][0]["url"] for side in ("prefill", "decode")] == [prefill.url, decode.url]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_the_clean_way_out_with_requests_under_way(place: Hall, number: int) -> None:
    prefill, decode = place.pair()
    prefill.hangs = True
    place.call(decode.flows.clear)
    with routed([prefill, decode]) as router, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(router.generate)
        prefill.calls.get(timeout=PATIENCE_S)
        prefill.hangs = False
        with router.http.stream("POST", "/generate", json={"text": "a", "stream": True}) as response:
            lines = response.iter_lines()
            assert next(lines).startswith("data: ")
            router.process.send_signal(number)
            told = [json.loads(line.removeprefix("data: ")) for line in lines if line]
        assert told[-1]["error"]["message"] == "the router is stopping"
        assert waiting.result(PATIENCE_S).status_code == 503
        assert router.process.wait(PATIENCE_S) == 0
    assert router.told == ""


def test_it_waits_for_engines_and_says_so(place: Hall) -> None:
    pair = place.pair()
    place.die(pair[1])
    process = start(pair)
    assert process.stdout is not None and process.stderr is not None
    assert process.stderr.readline().startswith(f"router: waiting for decode engine {pair[1].url}: nothing")
    place.restart(pair[1], nonce="up")
    assert process.stdout.readline().startswith("ready http://")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0


def test_a_signal_ends_the_wait(place: Hall) -> None:
    pair = place.pair()
    place.die(pair[0])
    process = start(pair)
    assert process.stderr is not None
    process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (0, "")


def test_engines_that_do_not_come_up_are_named(place: Hall) -> None:
    pair = place.pair()
    place.die(pair[1])
    done = run([*pair], "--wait-ready", "0")
    assert done.returncode == 1
    assert done.stderr.startswith(f"harness: not up after 0 s: decode engine {pair[1].url}: nothing answers")


def test_engines_that_are_no_pair_are_refused(place: Hall) -> None:
    prefill = place.engine(Side.PREFILL, tp_size=2, dcp_size=2)
    decode = place.engine(Side.DECODE)
    done = run([prefill, decode])
    refused = refuse_pair(prefill.shape, decode.shape)
    words = f"harness: prefill engine {prefill.url} and decode engine {decode.url} are no pair: {refused}\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", words)


def test_every_pair_is_looked_at(place: Hall) -> None:
    prefill, decode = place.pair()
    other = place.engine(Side.DECODE, dtype="bf16")
    done = run([prefill, decode, other])
    assert done.returncode == 2
    assert other.url in done.stderr and decode.url not in done.stderr


def test_what_is_no_engine_of_a_pair_is_refused(place: Hall) -> None:
    prefill, decode = place.pair()
    decode.shape = None  # type: ignore[assignment]
    done = run([prefill, decode])
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"decode engine {decode.url}: GET /disaggregation answered 404" in done.stderr


def test_a_port_in_use_is_one_line(place: Hall) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run([*place.pair()], "--port", str(port))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"harness: cannot listen on 127.0.0.1:{port}: Address already in use\n"


def test_a_router_that_waits_refuses_connections(place: Hall) -> None:
    pair = place.pair()
    place.die(pair[1])
    with reserve("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    process = start(pair, "--port", str(port))
    assert process.stdout is not None and process.stderr is not None
    process.stderr.readline()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    place.restart(pair[1], nonce="up")
    assert process.stdout.readline().startswith(f"ready http://127.0.0.1:{port} ")
    socket.create_connection(("127.0.0.1", port)).close()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0


def test_a_port_that_another_has_taken_meanwhile_is_one_line(place: Hall) -> None:
    pair = place.pair()
    place.die(pair[1])
    with reserve("127.0.0.1", 0) as other:
        port = other.getsockname()[1]
        process = start(pair, "--port", str(port))
        assert process.stderr is not None
        process.stderr.readline()
        listen(other)
        place.restart(pair[1], nonce="up")
        out, told = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (2, "")
    assert told == f"harness: cannot listen on 127.0.0.1:{port}: Address already in use\n"


@pytest.mark.parametrize("take", [bind, reserve])
def test_a_port_where_somebody_listens_is_never_taken(take: Callable[[str, int], socket.socket]) -> None:
    with bind("127.0.0.1", 0) as taken:
        with pytest.raises(UsageError, match=r"cannot listen on 127\.0\.0\.1:\d+: Address already in use"):
            take("127.0.0.1", taken.getsockname()[1])


def test_help_has_an_example() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "harness", "engine", "route", "--help"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    assert "harness engine route --prefill http://127.0.0.1:30000 --decode" in " ".join(done.stdout.split())
