"""A fresh ledger for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.ledger import Ledger


@pytest.fixture
def ledger(tmp_path: Path):
    with Ledger.open(tmp_path) as opened:
        yield opened
