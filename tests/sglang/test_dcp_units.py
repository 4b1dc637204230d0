"""Upstream's own DCP tests, unchanged, through `harness run --source`, on a checkout that the user has.

What a file's tests are is settled by its text, so known files must give known numbers; any other must pass.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from hashlib import sha256
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNIT = "test/registered/unit"
LAYOUT = "test/registered/dcp/test_dcp_layout_unit.py"
FILES = [
    LAYOUT,
    f"{UNIT}/managers/test_scheduler_init_req_max_new_tokens.py",
    f"{UNIT}/disaggregation/test_disaggregation_wire.py",
    f"{UNIT}/model_executor/test_pool_configurator.py",
]
# SHA-256 of the file (first digits) → tests and subtests in it.
KNOWN = {
    # before and after upstream's #33925, before and after its #34133, and the code of release 0.5.18
    **dict.fromkeys(["61f47db21a06", "5d31a8b77d3c"], (8, 0)),
    "8dda4c83e8b5": (11, 0),
    "6b56b2c85509": (17, 18),
    **dict.fromkeys(["58364746f3b9", "7d24bc182b09", "cf5cc1422e1d"], (8, 542)),
    **dict.fromkeys(["b8391b11beb2", "50161698c085"], (19, 2)),
    "9767841978bc": (23, 2),
    **dict.fromkeys(["c78de9bfb74a", "1b3257b9d7ca"], (26, 0)),
    "e53ca83922d7": (32, 2),
}
SUITE = """\
extends: {shipped}
source_tests: {{files: [{files}]}}
"""


@pytest.fixture(scope="module")
def source() -> Path:
    given = os.environ.get("HARNESS_SGLANG_SOURCE")
    if not given:
        pytest.skip(
            "needs a checkout of SGLang: HARNESS_SGLANG_SOURCE=PATH, and the environment that it wants"
        )
    return Path(given).absolute()


@pytest.fixture(scope="module")
def run(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict:
    """The run's JSON: four files of the shipped suite."""
    folder = tmp_path_factory.mktemp("units")
    (folder / "suites").mkdir()
    shipped = ROOT / "suites" / "sglang" / "dcp_units.yaml"
    (folder / "suites" / "four.yaml").write_text(SUITE.format(shipped=shipped, files=", ".join(FILES)))
    before = listing(source)
    done = subprocess.run(
        [sys.executable, "-m", "harness", "run", "four", "--source", str(source), "--json", "out.json"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HARNESS_REPORTS": str(folder / "reports")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert listing(source) == before, "something was left in the checkout"
    return json.loads((folder / "out.json").read_text())


def listing(source: Path) -> set[str]:
    return {str(path) for folder in ("python", "test") for path in (source / folder).rglob("*")}


def test_every_file_passes_under_the_name_of_the_source(run: dict) -> None:
    assert {job["matrix"]["file"]: job["verdict"] for job in run["jobs"]} == dict.fromkeys(FILES, "passed")
    assert all(
        job["engine_sha"].startswith("sglang ") and " source " in job["engine_sha"] for job in run["jobs"]
    )


def test_known_files_give_their_known_numbers(run: dict, source: Path) -> None:
    found = {job["matrix"]["file"]: counts(job) for job in run["jobs"]}
    told = {file: sha256((source / file).read_bytes()).hexdigest()[:12] for file in FILES}
    assert {file: found[file] for file in FILES if told[file] in KNOWN} == {
        file: KNOWN[digest] for file, digest in told.items() if digest in KNOWN
    }
    assert all(tests > 0 for tests, _ in found.values())


def counts(job: dict) -> tuple[int, int]:
    """Tests and subtests that passed."""
    kinds = Counter("subtest" in check["figures"] for check in job["checks"] if check["outcome"] == "passed")
    return kinds[False], kinds[True]
