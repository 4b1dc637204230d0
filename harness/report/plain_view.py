"""`PlainView`: a line per event, for pipes, CI logs and dumb terminals.

Each line begins with the time since the run's start and the job's id, so that `grep` finds a job's story.
When nothing happened for a while one line tells what still runs: a CI service ends jobs that look dead, and a
person wants to see that it goes on. That line comes from a thread that only ever waits and prints.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.text import Text

from harness.errors import HarnessError
from harness.report.board import Board, Lane
from harness.report.wording import (
    attempt_style,
    check_style,
    count_tests,
    devices,
    duration,
    first_line,
    look,
    target_label,
    told_by,
    what_it_says,
)
from harness.verdict import AttemptOutcome, AttemptRecord, CheckOutcome, CheckRecord, JobRecord, JobTicket

# Seconds of silence before a sign of life: often enough to follow, rare enough for a log of an hour.
SILENCE_S = 15.0


class PlainView:
    """Implements `verdict.LiveView` for everything that is not a person at a terminal."""

    def __init__(
        self, console: Console, *, clock: Callable[[], float] = time.monotonic, silence_s: float = SILENCE_S
    ) -> None:
        self._console = console
        self._board = Board(clock)
        self._silence_s = silence_s
        self._lock = threading.Lock()
        self._event = threading.Condition(self._lock)
        self._lines = 0
        self._closed = False
        self._pulse = threading.Thread(target=self._show_life, name="sign-of-life", daemon=True)

    def run_started(self, jobs: Sequence[JobTicket]) -> None:
        with self._lock:
            self._board.announce(jobs)
            self._print(Text(f"{len(jobs)} job{'s' * (len(jobs) != 1)}"))
        self._pulse.start()

    def job_started(self, job_id: str, *, attempt: int, node: str, devices: Sequence[str]) -> None:
        with self._lock:
            self._board.start(job_id, attempt=attempt, devices=devices)
            again = f" (attempt {attempt})" if attempt > 1 else ""
            self._say(job_id, Text(f"started{again}{_on(node, devices)}"))

    def check_finished(self, job_id: str, check: CheckRecord) -> None:
        with self._lock:
            lane = self._board.check(job_id, check)
            # plain tests end by the thousand: only those that did not pass are worth a line
            if not lane.ticket.checks and check.outcome is CheckOutcome.PASSED:
                return
            said = Text.assemble(f"{check.name} ", (check.outcome.value, check_style(check.outcome)))
            self._say(job_id, said, what_it_says(check), seconds=check.seconds)

    def attempt_finished(self, job_id: str, attempt: AttemptRecord) -> None:
        """Told where neither its checks' lines nor a verdict `passed` tell it."""
        if attempt.outcome in (None, AttemptOutcome.PASSED) or told_by(attempt.checks, attempt.reason):
            return
        with self._lock:
            said = Text(f"attempt {attempt.n} ").append(
                str(attempt.outcome), style=attempt_style(attempt.outcome)
            )
            self._say(job_id, said, first_line(attempt.reason))

    def job_finished(self, job: JobRecord) -> None:
        with self._lock:
            lane = self._board.finish(job)
            told = told_by(job.last_checks, job.reason) or (
                bool(job.attempts) and job.attempts[-1].reason == job.reason
            )
            how = look(job)
            said = Text(how.word.upper(), style=how.style)
            tests = count_tests(job.last_checks) if not lane.ticket.checks else ""
            why = "" if told else first_line(job.reason)
            on = target_label(job.engine_sha) if job.attempts else ""
            self._say(job.id, said, "; ".join(filter(None, [why, tests, on])), seconds=job.seconds or None)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._event.notify_all()
        if self._pulse.is_alive():
            self._pulse.join()

    def _say(self, job_id: str, what: Text, why: str = "", *, seconds: float | None = None) -> None:
        line = Text(f"{job_id}  ").append_text(what)
        if why:
            line.append(f": {why}")
        if seconds is not None:
            line.append(f"  ({duration(seconds)})", style="dim")
        self._print(line)

    def _print(self, line: Text) -> None:
        stamp = (f"{duration(self._board.run_seconds):>7}  ", "dim")
        self._console.print(Text.assemble(stamp, line), soft_wrap=True, highlight=False)
        self._console.file.flush()
        self._lines += 1
        self._event.notify_all()

    def _show_life(self) -> None:
        """Until closed, or until nothing can be written: then the next event says so, in the run's own thread."""
        with self._lock, contextlib.suppress(HarnessError):
            while not self._closed:
                before = self._lines
                self._event.wait(self._silence_s)
                if self._lines == before and not self._closed:
                    self._print(self._what_runs())

    def _what_runs(self) -> Text:
        running = [self._lane(lane) for lane in self._board.lanes if lane.running]
        return Text("still running: " + "; ".join(running) if running else "waiting for a free device")

    def _lane(self, lane: Lane) -> str:
        return f"{lane.ticket.id} {lane.activity} ({duration(self._board.elapsed(lane))})"


def _on(node: str, names: Sequence[str]) -> str:
    where = " ".join(filter(None, [node, devices(names)]))
    return f" on {where}" if where else ""
