"""The real `harness run --source` on an engine that is three files: its own tests, each in a process of its own.

The environment is the interpreter of these tests under another name, so that no real engine is needed. What is
shown is everything around the engine: who is started where, what is left in the checkout, and what is told.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from runs import ROOT, World

SUITE = """
summary: the engine's own tests
python: sglang
env: {HF_HUB_OFFLINE: "1"}
profiles: {cpu: {needs: {cpu: 1}, estimate: 1s, timeout: 2m}}
source_tests:
  files: [test/unit/test_*.py, test/unit/older/test_gone.py]
  exclude:
    - {file: test/unit/test_good.py, test: "TestGood::test_net", reason: asks a hub}
"""
PLAIN = """
summary: says which package it sees
targets: [reference, sglang]
profiles: {cpu: {needs: {cpu: 2}, estimate: 1s, timeout: 2m}}
tests: [test_sees.py]
"""
SEES = """
import os
import harness

def test_sees(target, record_property):
    if target == "reference":
        return
    import sglang
    words = f"{target} at {sglang.__file__}, harness at {harness.__file__}"
    record_property("harness_check", {"name": "sees", "outcome": "passed", "message": words})
    assert os.environ.get("CUDA_VISIBLE_DEVICES") != ""
"""
REGISTER = "def register_cpu_ci(*args, **kw): pass\ndef register_cuda_ci(*args, **kw): pass\n"
GOOD = """
import os, unittest
from pathlib import Path
import sglang
from sglang.ci import register_cpu_ci
register_cpu_ci(est_time=1, suite="a")

class TestGood(unittest.TestCase):
    def test_where(self):
        self.assertEqual(Path.cwd().name, "test")
        self.assertEqual(Path(sglang.__file__).parents[1].name, "python")
        self.assertEqual(os.environ["HF_HUB_OFFLINE"], "1")
        self.assertNotIn("CUDA_VISIBLE_DEVICES", os.environ)

    def test_sizes(self):
        for size in (1, 2, 4):
            with self.subTest(size=size):
                self.assertEqual(sglang.double(size), 2 * size)

    def test_net(self):
        raise OSError("no hub")
"""
FILES = {
    "python/sglang/__init__.py": "def double(size): return size * 2\n",
    "python/sglang/srt/__init__.py": "",
    "python/sglang/ci.py": REGISTER,
    "python/pyproject.toml": '[project]\ndependencies = [\n  "transformers==5.12.1",\n]\n',
    "test/pytest.ini": "[pytest]\n",
    "test/unit/test_good.py": GOOD,
    "test/unit/test_gpu.py": "from sglang.ci import register_cuda_ci\nregister_cuda_ci(1)\nraise OSError\n",
}


@pytest.fixture
def checkout(world: World) -> Path:
    root = world.folder / "engine"
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def envs(world: World) -> Path:
    """What the builder of environments leaves, as far as it is read: a base, and one environment on top of it."""
    folder = world.folder / "envs"
    record = {
        "schema": 1,
        "engine": "sglang",
        "version": "0.5.18",
        "base": "base",
        "package": "lib",
        "generation": "live",
        "transformers": "5.12.1",
        "python": "3",
        "proof": {"imported": [], "failed": {}, "seconds": 1.0},
    }
    (folder / "base").mkdir(parents=True)
    (folder / "base" / "environment.json").write_text('{"schema": 1}')
    (folder / "sglang-0.5.18" / "bin").mkdir(parents=True)
    (folder / "sglang-0.5.18" / "environment.json").write_text(json.dumps(record))
    python = folder / "sglang-0.5.18" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return folder


@pytest.fixture
def catalogue(world: World) -> None:
    suites = world.folder / "suites"
    suites.mkdir()
    (suites / "own.yaml").write_text(SUITE)
    (suites / "plain.yaml").write_text(PLAIN)
    (suites / "test_sees.py").write_text(SEES)
    (world.folder / "pools.yaml").write_text("pools:\n  cpu: {executor: local, slots: 2}\n")


def run(world: World, *args: str, envs: Path) -> tuple[int, str, dict[str, dict[str, Any]]]:
    """Exit code, stdout, and the jobs by their file, or else by their suite."""
    code, out, err = world.run("run", *args, HARNESS_ENVS=str(envs))
    assert "Traceback" not in err, err
    jobs = world.shown()["jobs"] if out else []
    return code, out + err, {job["matrix"].get("file", job["suite"]): job for job in jobs}


def test_each_file_is_a_job_with_a_verdict_for_each_test(
    world: World, checkout: Path, envs: Path, catalogue: None
) -> None:
    before = {path: path.read_bytes() for path in checkout.rglob("*") if path.is_file()}
    code, out, jobs = run(world, "own", "--source", str(checkout), envs=envs)
    good, gpu, gone = (jobs[f"test/unit/{name}.py"] for name in ("test_good", "test_gpu", "older/test_gone"))
    assert good["verdict"] == "passed", out
    assert {check["name"]: check["outcome"] for check in good["checks"]} == {
        "TestGood::test_where": "passed",
        "TestGood::test_sizes": "passed",
        **{f"TestGood::test_sizes (size={size})": "passed" for size in (1, 2, 4)},
        "TestGood::test_net": "skipped",
    }
    assert (gpu["verdict"], gpu["reason"]) == ("skipped", "registered for cuda only")
    assert (gone["verdict"], gone["reason"]) == ("not_run", "this source has no such file")
    assert code == 3  # a source asks for its target by name, and one file of the suite could not run
    assert out.splitlines()[0].endswith("3 jobs")
    assert "2 passed, 3 subtests, 1 skipped; sglang source" in out
    assert good["engine_sha"].startswith("sglang source ")
    assert good["engine_sha"].endswith(", dependencies of 0.5.18")
    after = {path: path.read_bytes() for path in checkout.rglob("*") if path.is_file()}
    assert after == before  # nothing was left in somebody's checkout


def test_one_file_is_run_by_its_point_and_by_its_name_and_again_says_so(
    world: World, checkout: Path, envs: Path, catalogue: None
) -> None:
    (checkout / "test/unit/test_good.py").write_text(GOOD.replace("2 * size", "3 * size"))
    for pattern in ("own[file=*/test_good.py]", "test/unit/test_good.py"):
        code, out, jobs = run(world, pattern, "--source", str(checkout), envs=envs)
        assert (code, list(jobs)) == (1, ["test/unit/test_good.py"]), out
        command = f"harness run 'own[file=test/unit/test_good.py]' --profile cpu --source {checkout}"
        assert command in out


def test_a_run_in_which_nothing_ran_is_not_green(
    world: World, checkout: Path, envs: Path, catalogue: None
) -> None:
    code, out, jobs = run(world, "own", envs=envs)
    assert (code, jobs["own"]["verdict"]) == (3, "not_run")
    assert "nothing ran: 1 not run" in out
    code, out, _ = run(world, "own", "plain", envs=envs)
    assert code == 0, out  # something ran, and nobody asked for the other by name
    assert run(world, "own@cpu", "plain", envs=envs)[0] == 3
    code, out, _ = run(world, "own[file=test/unit/test_gpu.py]", "--source", str(checkout), envs=envs)
    assert (code, "1 skipped" in out) == (0, True)  # that it is not for this machine is known, not missing


def test_exclusions_that_match_nothing_are_told(
    world: World, checkout: Path, envs: Path, catalogue: None
) -> None:
    def notes(pattern: str) -> list[str]:
        err = world.run("plan", pattern, "--source", str(checkout), HARNESS_ENVS=str(envs))[2]
        return [line for line in err.splitlines() if "excludes" in line]

    assert notes("own") == []
    (checkout / "test/unit/test_good.py").write_text(GOOD.replace("test_net", "test_web"))
    told = "harness: own excludes test/unit/test_good.py::TestGood::test_net, and this source has nothing of"
    assert [note.startswith(told) for note in notes("own")] == [True]
    assert len(notes("test/unit/test_good.py")) == 1
    assert notes("own[file=test/unit/test_gpu.py]") == []
    (checkout / "test/unit/test_good.py").unlink()
    assert len(notes("own")) == 1


def test_red_files_are_red_and_say_with_which_parameters(
    world: World, checkout: Path, envs: Path, catalogue: None
) -> None:
    (checkout / "python/sglang/__init__.py").write_text("def double(size): return size + 1\n")
    empty = "from sglang.ci import register_cpu_ci\nregister_cpu_ci(1)\ndef helper(): pass\n"
    (checkout / "test/unit/test_empty.py").write_text(empty)
    (checkout / "test/unit/test_broken.py").write_text("def test(:\n")
    skipping = "import pytest\nfrom sglang.ci import register_cpu_ci\nregister_cpu_ci(1)\n"
    skipping += "def test_a(): pass\ndef test_b(): pytest.skip('no GPU')\n"
    (checkout / "test/unit/test_skipping.py").write_text(skipping)
    code, out, jobs = run(world, "own", "--source", str(checkout), envs=envs)
    assert code == 1
    reasons = {path: job["reason"] for path, job in jobs.items() if job["verdict"] == "failed"}
    assert "TestGood::test_sizes (size=2) failed: AssertionError" in reasons["test/unit/test_good.py"]
    assert "no check was executed" in reasons["test/unit/test_empty.py"]
    assert "SyntaxError" in json.dumps(jobs["test/unit/test_broken.py"]["checks"])
    assert "test_b was skipped, which no suite declares" in reasons["test/unit/test_skipping.py"]
    assert len(reasons) == 4
    assert f"--source {checkout}" in out  # the command that runs it again


def test_tests_see_the_package_of_the_source_and_the_harness_that_runs(
    world: World, checkout: Path, envs: Path, catalogue: None
) -> None:
    code, out, jobs = run(world, "plain", "--source", str(checkout), envs=envs)
    assert code == 0, out
    (check,) = jobs["plain"]["checks"]
    assert f"sglang at {checkout}/python/sglang/__init__.py" in check["message"]
    assert f"harness at {ROOT}/harness/__init__.py" in check["message"]
    assert "1 passed; sglang source" in out


def test_another_harness_where_the_command_is_typed_is_not_taken(
    world: World, checkout: Path, envs: Path, catalogue: None
) -> None:
    other = world.folder / "harness"
    other.mkdir()
    (other / "__init__.py").write_text("raise OSError('not this one')\n")
    where = {
        "PYTHONPATH": str(ROOT),
        "HARNESS_ENVS": str(envs),
        "HARNESS_POOLS": str(world.folder / "pools.yaml"),
    }
    done = subprocess.run(
        [sys.executable, "-P", "-m", "harness", "run", "plain", "--source", str(checkout)],
        cwd=world.folder,
        env={**os.environ, **where, "HARNESS_REPORTS": str(world.reports)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"harness at {ROOT}/harness/__init__.py" in done.stdout


def test_the_reference_stays_the_default(world: World, envs: Path, catalogue: None) -> None:
    code, out, jobs = run(world, "plain", envs=envs)
    assert code == 0, out
    assert (jobs["plain"]["verdict"], jobs["plain"]["engine_sha"]) == ("passed", None)
