"""Fixtures of the execution tests; what they are made of is in `run_bench`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from run_bench import Bench

from harness.containment import choose_containment
from harness.errors import UsageError
from harness.ledger import Ledger


@pytest.fixture(params=["pidns", "guard"])
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """For tests of what a containment decides."""
    try:
        choose_containment(request.param)
    except UsageError as error:
        pytest.skip(f"needs PID namespaces: {error}")
    monkeypatch.setenv("HARNESS_CONTAINMENT", request.param)
    return str(request.param)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Ledger.open(tmp_path / "reports" / "ledger.db") as ledger:
        yield Bench(folder=tmp_path, ledger=ledger)
