"""Small wheels for all tests of a session, and a folder of environments for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from small_engine import SmallEngine, make_small_engine

from harness.environments import releases


@pytest.fixture(scope="session")
def small_engine(tmp_path_factory: pytest.TempPathFactory) -> SmallEngine:
    return make_small_engine(tmp_path_factory.mktemp("wheels"))


@pytest.fixture
def small_data(small_engine: SmallEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallEngine]:
    """This process builds from the small wheels, too."""
    monkeypatch.setattr(releases, "RELEASES", small_engine.releases)
    monkeypatch.setattr(releases, "BASE_PINS", small_engine.pins)
    for name, value in small_engine.settings().items():
        monkeypatch.setenv(name, value)
    releases._data.cache_clear()
    yield small_engine
    releases._data.cache_clear()


@pytest.fixture
def envs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of environments, empty."""
    folder = tmp_path / "envs"
    monkeypatch.setenv("HARNESS_ENVS", str(folder))
    return folder
