"""Two real engines that share requests, and a client that sends each request to both, as a router does."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
from engine_process import PATIENCE_S, RunningEngine, generate_body, running

from harness.refengine.config import DisaggregationMode, EngineConfig, TransferBackend

# Far more requests at a time than any test has: none may wait for another's thread.
_CLIENTS = 128
_pairs = itertools.count()


@dataclass
class Pair:
    """A prefill and a decode engine. Rooms are numbers that nobody has used."""

    prefill: RunningEngine
    decode: RunningEngine
    clients: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_CLIENTS))
    rooms: random.Random = field(default_factory=lambda: random.Random(next(_pairs)))

    @property
    def sides(self) -> tuple[RunningEngine, RunningEngine]:
        return self.prefill, self.decode

    def body(self, body: dict[str, Any]) -> dict[str, Any]:
        """`body` with what a router adds; for a list of prompts as well."""
        return {
            **body,
            "bootstrap_room": self.rooms.getrandbits(62),
            "bootstrap_host": "127.0.0.1",
            "bootstrap_port": self.prefill.port,
        }

    def post(
        self, body: dict[str, Any], *, path: str = "/generate"
    ) -> tuple[Future[httpx.Response], Future[httpx.Response]]:
        """Send one request to both engines at once; the answers of (prefill, decode)."""
        sent = self.body(body)
        first, second = (self.clients.submit(side.http.post, path, json=sent) for side in self.sides)
        return first, second

    def ask(self, body: dict[str, Any], *, path: str = "/generate") -> Any:
        """The answer of the decode engine, once both have answered without an error."""
        responses = [future.result() for future in self.post(body, path=path)]
        for response in responses:
            assert response.status_code == 200, response.text
        return responses[1].json()

    def generate(self, prompt: str | list[Any], **params: Any) -> Any:
        return self.ask(generate_body(prompt, **params))


@contextmanager
def pair(
    prefill: EngineConfig,
    decode: EngineConfig,
    *,
    directory: Path,
    backend: TransferBackend = TransferBackend.TCP,
) -> Iterator[Pair]:
    """A pair that is ready; both are gone afterwards."""
    with ExitStack() as stack:
        engines = []
        for mode, config in ((DisaggregationMode.PREFILL, prefill), (DisaggregationMode.DECODE, decode)):
            place = directory / mode.value
            place.mkdir()
            engines.append(stack.enter_context(start_side(config, mode, directory=place, backend=backend)))
        found = Pair(*engines)
        stack.callback(found.clients.shutdown, wait=False)
        yield found


@contextmanager
def start_side(
    config: EngineConfig,
    mode: DisaggregationMode,
    *,
    directory: Path,
    backend: TransferBackend = TransferBackend.TCP,
    zygote: Sequence[str] | None = None,
) -> Iterator[RunningEngine]:
    """One engine of a pair, with a client whose requests never wait for each other's connections."""
    config = replace(config, disaggregation_mode=mode, disaggregation_transfer_backend=backend)
    limits = httpx.Limits(max_connections=None)
    with running(config, directory=directory, zygote=zygote) as engine:
        with httpx.Client(base_url=engine.url, timeout=PATIENCE_S, limits=limits, trust_env=False) as http:
            engine.http = http
            yield engine


def busy(info: Any) -> bool:
    """Whether an engine's `/server_info` tells of any request."""
    return bool(info["running"] or info["waiting"] or any(rank["transfer"]["open"] for rank in info["ranks"]))


def wait_drained(engine: RunningEngine) -> None:
    """Ask until the engine holds nothing; then every row must be free and as it was."""
    deadline = time.monotonic() + PATIENCE_S
    while busy(info := engine.info()):
        assert time.monotonic() < deadline, f"{info['running']} running, {info['waiting']} waiting"
    for held, rank in zip(engine.rows()["ranks"], info["ranks"], strict=True):
        assert held["rows"] == []
        assert held["free_rows"] == rank["kv_rows"]
        assert held["free_rows_poisoned"]
    assert engine.http.get("/flush_cache").status_code == 200
