"""A stand-in for the pytest process of a job. Run as a script: `fake_job.py EVENTS CODE`.

CODE is Python that says what the job does, with the helpers below in reach. Results travel exactly as
pytest-reportlog writes them, questions as the checks do, and the doorbell is rung as the plugin does.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
from pathlib import Path

EVENTS = Path(sys.argv[1])


def write(text: str) -> None:
    with EVENTS.open("a") as file:
        file.write(text)


def ask(number: int, *, bell: bool = True, **others: object) -> None:
    """One question's record, streamed beside the events; without `bell` nobody is told."""
    record = {
        "check": "accuracy",
        "role": "engine",
        "question": number,
        "prompt_hash": "ab",
        "expected": "42",
    }
    with EVENTS.with_name("questions.jsonl").open("a") as file:
        file.write(json.dumps({**record, "outcome": "correct", **others}) + "\n")
    if bell:
        ring()


def ring() -> None:
    os.write(int(os.environ["HARNESS_DOORBELL_FD"]), b".")


def check(name: str, outcome: str = "passed", **others: object) -> None:
    """One check's result, streamed."""
    said = {"name": name, "outcome": outcome, "message": "", "figures": {}, "seconds": 0.5, **others}
    report = {
        "$report_type": "TestReport",
        "nodeid": f"suites/x.yaml::job::{name}",
        "when": "call",
        "outcome": "passed" if outcome in ("passed", "underpowered", "unproven") else "failed",
        "longrepr": None,
        "duration": 0.5,
        "user_properties": [["harness_check", said]],
    }
    write(json.dumps(report) + "\n")
    ring()


def hang(*, stubborn: bool = False) -> None:
    """Sleep for ever, with stacks on demand as a real job."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    if stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        signal.pause()


def await_file(name: str) -> None:
    """Wait for a file in the job's folder that the test makes; the job's deadline bounds it."""
    while not Path(name).exists():
        signal.sigtimedwait([], 0.01)


def die(signum: int) -> None:
    os.kill(os.getpid(), signum)
    signal.pause()


if __name__ == "__main__":
    exec(sys.argv[2])
