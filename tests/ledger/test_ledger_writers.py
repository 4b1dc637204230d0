"""Processes write at once; one is killed in mid-write: nothing acknowledged is lost, the other goes on."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys

from harness.ledger import Ledger
from harness.verdict import Verdict

# Prints each row's number once the ledger has acknowledged it.
WRITER = """
import sys
from pathlib import Path
from harness.ledger import Ledger
from harness.verdict import CheckOutcome, CheckRecord, Verdict
ledger, rows = Ledger.open(Path(sys.argv[1])), int(sys.argv[2])
run = ledger.start_run(harness_sha="abc")
print(run, flush=True)
ledger.add_job(run, "a@cpu", suite="a", profile="cpu")
ledger.start_attempt(run, "a@cpu", n=1)
n = 0
while rows == 0 or n < rows:
    record = CheckRecord(name=str(n), outcome=CheckOutcome.PASSED)
    ledger.add_checks(run, "a@cpu", n=1, checks=[record])
    print(n, flush=True)
    n += 1
ledger.end_job(run, "a@cpu", verdict=Verdict.PASSED)
ledger.end_run(run)
"""


def start(folder, *, rows: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), str(rows)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def names(ledger: Ledger, run: str) -> list[str]:
    return [check.name for check in ledger.load_run(run).jobs[0].last_checks]


def test_a_killed_writer_loses_no_acknowledged_row_and_does_not_disturb_the_other(tmp_path):
    folder = tmp_path / "reports"  # made by whoever comes first
    steady, victim = start(folder, rows=60), start(folder, rows=0)
    victim_run = victim.stdout.readline().strip()
    acknowledged = [victim.stdout.readline().strip() for _ in range(25)]
    victim.send_signal(signal.SIGKILL)
    acknowledged += victim.stdout.read().split("\n")[:-1]  # a line cut short was not acknowledged
    assert victim.wait() == -signal.SIGKILL
    told = steady.communicate(timeout=60)[0].split()
    assert steady.returncode == 0
    with Ledger.open(folder, create=False) as ledger:
        assert names(ledger, told[0]) == told[1:] == [str(n) for n in range(60)]
        assert ledger.load_run(told[0]).jobs[0].verdict is Verdict.PASSED
        written = names(ledger, victim_run)
        assert written[: len(acknowledged)] == acknowledged
        assert len(written) <= len(acknowledged) + 1  # at most the one in flight was written unacknowledged
        assert ledger.load_run(victim_run).jobs[0].verdict is Verdict.NOT_RUN
    with sqlite3.connect(folder / "ledger.db") as raw:
        assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_several_first_writers_at_once_make_one_ledger_and_distinct_runs(tmp_path):
    writers = [start(tmp_path / "new", rows=1) for _ in range(4)]
    runs = {writer.communicate(timeout=60)[0].split()[0] for writer in writers}
    assert [writer.returncode for writer in writers] == [0] * 4
    with Ledger.open(tmp_path / "new", create=False) as ledger:
        assert {summary.run for summary in ledger.runs()} == runs
    assert len(runs) == 4
