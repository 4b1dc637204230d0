"""Every containment test runs in both modes; one that this machine cannot offer is a skip with its reason."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from harness.containment import Containment, choose_containment
from harness.containment.proc import read_process
from harness.errors import UsageError

# Long enough for a loaded two-core machine; only a failing test waits for it.
PATIENCE = 60.0


@pytest.fixture(params=["pidns", "guard"])
def containment(request: pytest.FixtureRequest) -> Containment:
    try:
        return choose_containment(request.param)
    except UsageError as error:
        pytest.skip(f"needs PID namespaces: {error}")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "job.log", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


@pytest.fixture(scope="session")
def until() -> Callable[[Callable[[], bool], str], None]:
    """Wait for what another process does to the file system or to /proc, which offer no event for it."""

    def wait(condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"not within {PATIENCE} s: {what}"
            select.select([], [], [], 0.01)

    return wait


@pytest.fixture(scope="session")
def living() -> Callable[[Iterable[int]], list[int]]:
    """Those of the pids that run, zombies not counted."""

    def filtered(pids: Iterable[int]) -> list[int]:
        rows = (read_process(pid) for pid in pids)
        return [row.pid for row in rows if row is not None and row.living]

    return filtered
