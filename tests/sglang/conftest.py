"""Tests of real SGLang: they need an environment that `make sglang` builds, and say so where it is missing."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from harness.environments import Environment, EnvironmentMissingError, find_environment


@pytest.fixture(scope="session")
def sglang_environment() -> Callable[[str], Environment]:
    """`sglang_environment("0.5.18")` is its environment. Where there is none the test is skipped with the command
    that builds it; it fails where HARNESS_REQUIRE_SGLANG names that version, as in CI ("0.5.17 0.5.18")."""

    def find(version: str) -> Environment:
        try:
            return find_environment("sglang", version=version)
        except EnvironmentMissingError as error:
            missing = str(error)
        if version in os.environ.get("HARNESS_REQUIRE_SGLANG", "").replace(",", " ").split():
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)

    return find
