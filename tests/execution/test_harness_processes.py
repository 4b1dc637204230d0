"""Several harness processes on one machine: killed ones, and two at once."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from run_bench import Bench

from harness.containment.proc import descendants_of, read_process
from harness.execution.scratch import sweep_scratch
from harness.execution.slots import SlotLocks
from harness.verdict import Verdict

HERE = Path(__file__).parent
PATIENCE = 60.0


def start(bench: Bench, code: str, **environment: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(HERE), *sys.path])
    return subprocess.Popen(
        [sys.executable, str(HERE / "harness_process.py"), str(bench.reports), str(bench.folder), code],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE} s: {what}"
        select.select([], [], [], 0.01)


def gone(pids: list[int]) -> bool:
    rows = [read_process(pid) for pid in pids]
    return not any(row is not None and row.living for row in rows)


def test_kill_9_of_the_harness_leaves_no_process_and_a_ledger_that_says_so(
    bench: Bench, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "check('capacity', message='kept'); os.fork(); Path('up').touch(); hang(stubborn=True)"
    with start(bench, code, TMPDIR=str(bench.folder)) as harness:
        until((bench.folder / "up").exists, "the job runs")
        until(lambda: len(bench.ledger.load_run().jobs[0].last_checks) == 1, "its check is in the ledger")
        tree = descendants_of(harness.pid)
        assert len(tree) >= 3  # at least the init and two processes of the job
        harness.kill()
    until(lambda: gone(tree), f"{tree} are gone")
    (job,) = bench.ledger.load_run().jobs
    assert (job.verdict, job.last_checks[0].message) == (Verdict.NOT_RUN, "kept")
    locks = SlotLocks(bench.reports / "slots")
    assert locks.take(["cpu:0"]) == {"cpu:0"}
    locks.close()
    monkeypatch.setattr(tempfile, "tempdir", str(bench.folder))
    assert len(sweep_scratch()) == 1  # the dead harness could not remove its own
    assert sweep_scratch() == []


def test_sigterm_ends_a_harness_in_order(bench: Bench) -> None:
    with start(bench, "Path('up').touch(); hang()") as harness:
        assert harness.stdout is not None
        run_id = harness.stdout.readline().strip()
        until((bench.folder / "up").exists, "the job runs")
        harness.send_signal(signal.SIGTERM)
        assert harness.stdout.read().strip() == "not_run"
    record = bench.ledger.load_run(run_id)
    assert record.interrupted
    assert record.jobs[0].reason == "the run was interrupted"


def test_two_runs_at_once_share_the_slots(bench: Bench) -> None:
    """The second job would find the first one's file if it ran meanwhile."""
    code = """
os.close(os.open('busy', os.O_CREAT | os.O_EXCL))
Path('one-runs').touch()
await_file('go')
os.unlink('busy')
check('capacity')
"""
    with start(bench, code) as first, start(bench, code) as second:
        until((bench.folder / "one-runs").exists, "one of the two jobs runs")
        runs = [harness.stdout.readline().strip() for harness in (first, second) if harness.stdout]
        until(
            lambda: all(len(bench.ledger.load_run(run).jobs) == 1 for run in runs),
            "both runs are in the ledger",
        )
        started = [bool(bench.ledger.load_run(run).jobs[0].attempts) for run in runs]
        assert sorted(started) == [False, True]  # the other one waits, and no attempt of it has begun
        (bench.folder / "go").touch()
        ends = [harness.stdout.read().strip() for harness in (first, second) if harness.stdout]
    assert ends == ["passed", "passed"]
