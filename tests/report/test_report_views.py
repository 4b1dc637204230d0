"""The live views, driven by the events of a run and a clock that a test turns."""

from __future__ import annotations

import io
import os
import pty
import threading
from dataclasses import replace

import pytest
from report_runs import ACTIVE, PARITY, make_attempt, make_job
from rich.cells import cell_len
from rich.console import Console

from harness.errors import HarnessError
from harness.report import PlainView, RichView, choose_view
from harness.verdict import JobTicket, LiveView

CHECKS = ("active", "parity", "rows")


def ticket(name: str, profile: str = "cpu") -> JobTicket:
    return JobTicket(id=f"dcp/{name}@{profile}", suite=f"dcp/{name}", profile=profile, checks=CHECKS)


class Clock:
    """Seconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def drive(view: LiveView, clock: Clock) -> None:
    """Three jobs: one red after a retry, one that cannot run, one still running."""
    view.run_started([ticket("red"), ticket("busy"), ticket("no_pool", "gpu")])
    view.job_finished(make_job("no_pool", "not_run", profile="gpu", reason="no pool has a b200"))
    view.job_started("dcp/red@cpu", attempt=1, node="host", devices=["cpu:0", "cpu:1"])
    clock.now += 2
    view.attempt_finished("dcp/red@cpu", make_attempt(1, "infra", reason="port probe: 3 taken"))
    view.job_started("dcp/red@cpu", attempt=2, node="host", devices=["cpu:0", "cpu:1"])
    view.check_finished("dcp/red@cpu", ACTIVE)
    clock.now += 3.5
    view.check_finished("dcp/red@cpu", PARITY)
    reason = f"parity failed: {PARITY.message.splitlines()[0]}"
    second = make_attempt(2, "failed", ACTIVE, PARITY, reason=reason)
    view.attempt_finished("dcp/red@cpu", second)
    view.job_finished(make_job("red", "failed", second, reason=f"attempt 2: {reason}", seconds=5.5))
    view.job_started("dcp/busy@cpu", attempt=1, node="", devices=["cpu:1"])
    view.check_finished("dcp/busy@cpu", ACTIVE)
    clock.now += 61


def table(width: int, height: int = 20, *, tell=drive) -> list[str]:
    clock = Clock()
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=False)
    view = RichView(console, clock=clock)
    tell(view, clock)
    with console.capture() as captured:
        console.print(view.render())
    view.close()
    view.close()
    return [line.rstrip() for line in captured.get().splitlines()]


def test_the_table_on_a_wide_terminal():
    red, busy, no_pool, foot = table(110)
    assert red.startswith("✘ dcp/red      cpu  failed (2)  attempt 2: parity failed: length 63, position 17")
    assert red.endswith("…   3.5 s")
    assert busy.startswith("● dcp/busy     cpu  running     parity 2/3  ")
    assert busy.endswith("  1m 01s  cpu:1")
    assert no_pool == "– dcp/no_pool  gpu  not run     no pool has a b200"
    assert foot == "  1 failed  1 not run  1 running  1m 06s"


@pytest.mark.parametrize("width", [50, 80])
def test_a_narrow_table_keeps_states_times_and_one_line_a_job(width):
    lines = table(width)
    assert len(lines) == 4
    assert all(cell_len(line) <= width for line in lines)
    assert "failed (2)" in lines[0]
    assert "1m 01s" in lines[1]
    assert "cpu:1" not in lines[1]


def test_a_low_screen_keeps_what_runs_and_what_is_red():
    def crowd(view: LiveView, clock: Clock) -> None:
        view.run_started([ticket(f"j{n}") for n in range(30)])
        view.job_started("dcp/j7@cpu", attempt=1, node="", devices=[])
        view.job_finished(make_job("j9", "failed"))
        view.job_finished(make_job("j8", "passed"))

    lines = table(80, 10, tell=crowd)
    assert [line.split()[1] for line in lines[:-1]] == ["dcp/j7", "dcp/j9"]
    assert lines[-1].split("  ")[1:5] == ["1 passed", "1 failed", "1 running", "27 waiting"]


def test_the_activity_follows_the_declared_checks():
    def busy(view: LiveView, clock: Clock) -> None:
        view.run_started([ticket("a"), JobTicket(id="b@cpu", suite="b", profile="cpu")])
        for job_id in ("dcp/a@cpu", "b@cpu"):
            view.job_started(job_id, attempt=1, node="", devices=[])
        for _ in CHECKS:
            view.check_finished("dcp/a@cpu", ACTIVE)

    lines = table(80, tell=busy)
    assert "3 checks done" in lines[0]
    assert "starting" in lines[1]


def test_the_live_table_leaves_the_terminal_clean():
    clock, out = Clock(), io.StringIO()
    view = RichView(Console(file=out, width=80, height=20, force_terminal=True, no_color=True), clock=clock)
    drive(view, clock)
    view.close()
    drawn = out.getvalue()
    assert "dcp/red" in drawn
    assert drawn.count("\x1b[?25l") == drawn.count("\x1b[?25h") == 1  # cursor hidden, and shown again
    assert drawn.endswith("\x1b[2K")  # the table is wiped


def plain(**options) -> str:
    clock, out = Clock(), io.StringIO()
    view = PlainView(Console(file=out, width=40, **options), clock=clock)
    drive(view, clock)
    view.close()
    view.close()
    return out.getvalue()


def test_a_line_per_event_and_each_reason_once():
    said = PARITY.message.splitlines()[0]
    assert plain().splitlines() == [
        "  0.0 s  3 jobs",
        "  0.0 s  dcp/no_pool@gpu  NOT RUN: no pool has a b200",
        "  0.0 s  dcp/red@cpu  started on host cpu:0-1",
        "  2.0 s  dcp/red@cpu  attempt 1 infra: port probe: 3 taken",
        "  2.0 s  dcp/red@cpu  started (attempt 2) on host cpu:0-1",
        "  2.0 s  dcp/red@cpu  active passed: 4 ranks live at dcp 4  (0.2 s)",
        f"  5.5 s  dcp/red@cpu  parity failed: {said}  (1.2 s)",
        "  5.5 s  dcp/red@cpu  FAILED  (5.5 s)",
        "  5.5 s  dcp/busy@cpu  started on cpu:1",
        "  5.5 s  dcp/busy@cpu  active passed: 4 ranks live at dcp 4  (0.2 s)",
    ]


def test_a_killed_attempt_is_told_once():
    clock, out = Clock(), io.StringIO()
    view = PlainView(Console(file=out), clock=clock)
    view.run_started([ticket("a")])
    killed = make_attempt(1, "failed", reason="job process was killed by SIGKILL")
    view.job_started("dcp/a@cpu", attempt=1, node="", devices=[])
    view.attempt_finished("dcp/a@cpu", killed)
    view.job_finished(make_job("a", "failed", killed, reason=killed.reason))
    view.close()
    assert out.getvalue().splitlines()[2:] == [
        "  0.0 s  dcp/a@cpu  attempt 1 failed: job process was killed by SIGKILL",
        "  0.0 s  dcp/a@cpu  FAILED",
    ]


def test_plain_tests_are_counted_and_only_red_ones_get_a_line():
    out = io.StringIO()
    view = PlainView(Console(file=out), clock=Clock())
    view.run_started([JobTicket(id="unit@cpu", suite="unit", profile="cpu")])
    view.job_started("unit@cpu", attempt=1, node="", devices=[])
    for check in [ACTIVE] * 1500 + [PARITY]:
        view.check_finished("unit@cpu", check)
    attempt = make_attempt(1, "failed", *[ACTIVE] * 1500, PARITY, reason="")
    view.job_finished(replace(make_job("unit", "failed", attempt, reason="red"), id="unit@cpu"))
    view.close()
    assert [line[9:30] for line in out.getvalue().splitlines()[2:]] == [
        "unit@cpu  parity fail",
        "unit@cpu  FAILED: red",
    ]
    assert out.getvalue().endswith("FAILED: red; 1,500 passed, 1 failed\n")


class Lines(io.StringIO):
    """A file that tells a test when a line with these words has been written."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self.words, self.seen = words, threading.Event()

    def write(self, text: str) -> int:
        written = super().write(text)
        if self.words in self.getvalue():
            self.seen.set()
        return written


@pytest.mark.parametrize(
    ("start", "words"),
    [(True, "still running: dcp/a@cpu active 1/3 (0.0 s)"), (False, "waiting for a free device")],
)
def test_silence_is_broken_by_a_sign_of_life(start, words):
    out = Lines(words)
    view = PlainView(Console(file=out), clock=Clock(), silence_s=0.01)
    view.run_started([ticket("a")])
    if start:
        view.job_started("dcp/a@cpu", attempt=1, node="", devices=[])
    assert out.seen.wait(timeout=30)
    view.close()
    after = out.getvalue()
    assert not [thread for thread in threading.enumerate() if thread.name == "sign-of-life"]
    assert out.getvalue() == after


def test_closing_before_anything_started_is_fine():
    PlainView(Console(file=io.StringIO())).close()
    RichView(Console(file=io.StringIO())).close()


@pytest.fixture
def terminal_file():
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as file:
        yield file
    os.close(ours)


@pytest.mark.parametrize(
    ("environ", "view"),
    [({}, RichView), ({"CI": "false"}, RichView), ({"CI": "true"}, PlainView), ({"CI": "1"}, PlainView)],
)
def test_a_terminal_gets_the_table_unless_it_is_ci(terminal_file, monkeypatch, environ, view):
    monkeypatch.setenv("TERM", "xterm")
    assert type(choose_view(Console(file=terminal_file), environ=environ)) is view


def test_a_dumb_terminal_and_a_forced_pipe_get_lines(terminal_file, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    assert type(choose_view(Console(file=terminal_file), environ={})) is PlainView
    monkeypatch.setenv("TERM", "xterm")
    assert type(choose_view(Console(file=io.StringIO(), force_terminal=True), environ={})) is PlainView


def test_only_the_time_of_a_line_is_dim():
    clock = Clock()
    out = io.StringIO()
    view = PlainView(Console(file=out, width=80, force_terminal=True, color_system="standard"), clock=clock)
    view.run_started([ticket("a")])
    view.job_started("dcp/a@cpu", attempt=1, node="", devices=[])
    view.close()
    assert "\x1b[2m  0.0 s  \x1b[0mdcp/a@cpu  started\n" in out.getvalue()


class Gone(io.StringIO):
    """A pipe whose reader leaves."""

    def __init__(self) -> None:
        super().__init__()
        self.reader = True
        self.tried = threading.Event()

    def write(self, text: str) -> int:
        if self.reader:
            return super().write(text)
        self.tried.set()
        raise HarnessError("nobody reads")


def test_a_sign_of_life_that_nobody_reads_is_no_crash_and_the_next_event_tells(monkeypatch):
    crashes: list[object] = []
    monkeypatch.setattr(threading, "excepthook", crashes.append)
    out = Gone()
    view = PlainView(Console(file=out), silence_s=0.01)
    view.run_started([ticket("a")])
    out.reader = False
    assert out.tried.wait(10)
    with pytest.raises(HarnessError, match="nobody reads"):
        view.job_started("dcp/a@cpu", attempt=1, node="", devices=[])
    view.close()
    assert crashes == []
