"""The suite where there is no SGLang to drive: one line that says what to do."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


def test_without_the_package_one_error_says_how_to_get_it() -> None:
    assert find_spec("sglang") is None, "harness's own environment never has the engine"
    words = ("-m", "pytest", "suites/sglang/test_dcp_reads.py", "-q", "-p", "no:cacheprovider")
    done = subprocess.run([sys.executable, *words], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    told = [line for line in done.stdout.splitlines() if line.startswith("sglang is not importable")]
    assert told == ["sglang is not importable here; first: make sglang VERSION=0.5.18"], done.stdout
    assert "1 error in" in done.stdout
    assert "failed" not in done.stdout
