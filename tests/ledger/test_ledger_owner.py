"""Whose run it is: a dead process, a zombie and a reused process id are all told from a living owner."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from harness.ledger import Ledger, Owner, RunState
from harness.verdict import AttemptOutcome, CheckOutcome, CheckRecord, Verdict

OTHER_PROCESS = """
import sys
from pathlib import Path
from harness.ledger import Ledger
ledger = Ledger.open(Path(sys.argv[1]))
run = ledger.start_run(harness_sha="abc")
for job in ("done@cpu", "red@cpu", "busy@cpu", "waiting@cpu"):
    ledger.add_job(run, job, suite=job[:-4], profile="cpu")
from harness.verdict import *
ok = CheckRecord(name="active", outcome=CheckOutcome.PASSED)
for job in ("done@cpu", "red@cpu", "busy@cpu"):
    ledger.start_attempt(run, job, n=1)
    ledger.add_checks(run, job, n=1, checks=[ok])
ledger.end_attempt(run, "done@cpu", n=1, outcome=AttemptOutcome.PASSED)
ledger.end_job(run, "done@cpu", verdict=Verdict.PASSED)
ledger.end_attempt(run, "red@cpu", n=1, outcome=AttemptOutcome.FAILED, reason="parity failed")
print(run, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other(tmp_path):
    """A process that has started a run and holds it open, and that run's id."""
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER_PROCESS, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with process:
        yield process, process.stdout.readline().strip()
        process.kill()


def test_this_process_is_alive_and_its_double_with_another_start_is_not():
    owner = Owner.current()
    assert owner.alive()
    assert not replace(owner, start_ticks=owner.start_ticks - 1).alive()
    assert not replace(owner, boot_id="another boot").alive()


def test_a_zombie_is_dead():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    stat = open(f"/proc/{pid}/stat").read()  # noqa: PTH123, SIM115
    zombie = replace(Owner.current(), pid=pid, start_ticks=int(stat.rpartition(")")[2].split()[19]))
    assert not zombie.alive()
    os.waitpid(pid, 0)
    assert not zombie.alive()


def test_a_killed_run_keeps_what_was_finished_and_says_why_the_rest_is_missing(other, tmp_path):
    process, run = other
    with Ledger.open(tmp_path) as ledger:
        assert ledger.run_state(run) is RunState.RUNNING
        assert [job.verdict for job in ledger.load_run(run).jobs] == [Verdict.PASSED, None, None, None]
        process.kill()
        process.wait()
        assert ledger.run_state(run) is RunState.DIED
        loaded = ledger.load_run(run)
    assert loaded.interrupted
    done, red, busy, waiting = loaded.jobs
    assert done.verdict is Verdict.PASSED
    assert (red.verdict, red.reason) == (Verdict.FAILED, "parity failed")
    for job in (busy, waiting):
        assert (job.verdict, job.reason) == (Verdict.NOT_RUN, "the run ended first")
    assert [attempt.outcome for attempt in busy.attempts] == [AttemptOutcome.INTERRUPTED]
    assert busy.last_checks == (CheckRecord(name="active", outcome=CheckOutcome.PASSED),)
