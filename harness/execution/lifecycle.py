"""One attempt of one job: its states, and one function per transition.

    RUNNING ──expire──→ DUMPING ──ask──→ STOPPING ──kill──→ KILLED
       └──────────interrupt─────────────────┘
    any of them ──second interrupt──→ KILLED
    any of them ──end──→ ENDED

A deadline that passed first lets every process write its stacks (DUMPING), then asks the job to stop, then
kills. The loop calls `advance` when `due` has come, and `end` when the pidfd says that the tree is gone.
Failure rule: whatever has been streamed before a violent end is read and kept.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from harness.containment import KILL_SECONDS, Contained, Deadline
from harness.errors import InfraError
from harness.execution.events import EventTail, passed_deadline, read_questions
from harness.execution.options import RunOptions
from harness.execution.scratch import Scratch
from harness.planning import Placement
from harness.suites import Job
from harness.verdict import AskedQuestion, AttemptOutcome, CheckRecord, ProcessEnd, classify_attempt


class AttemptState(StrEnum):
    """Where an attempt is on its way."""

    RUNNING = "running"
    DUMPING = "dumping"
    STOPPING = "stopping"
    KILLED = "killed"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What an attempt streamed between two looks."""

    checks: tuple[CheckRecord, ...]
    asked: tuple[AskedQuestion, ...]


@dataclass(slots=True, kw_only=True)
class Attempt:
    """What is known about an attempt that has a process."""

    job: Job
    n: int
    placement: Placement
    tree: Contained
    doorbell: int
    tail: EventTail
    question_tail: EventTail
    scratch: Scratch
    log_path: str
    options: RunOptions
    clock: Callable[[], float] = time.monotonic
    state: AttemptState = AttemptState.RUNNING
    checks: list[CheckRecord] = field(default_factory=list)
    interrupted: bool = False
    expired: str | None = None
    due: Deadline | None = field(init=False)
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.clock()
        self.due = Deadline("job", self.job.timeout_s, self.clock)

    def answer(self) -> bool:
        """Empty the doorbell; False when nobody is left who could ring it."""
        return os.read(self.doorbell, 65536) != b""

    def look(self) -> News:
        """What was streamed since the last look; its checks are the attempt's from now on.

        Checks are read first: where one is told, all its questions are in reach of this very look.
        """
        checks = self.tail.read()
        asked, unreadable = read_questions(self.question_tail.new_lines())
        self.checks += checks + unreadable
        return News(checks=tuple(checks + unreadable), asked=tuple(asked))

    def advance(self) -> None:
        """`due` has come: take the transition that it stands for."""
        match self.state:
            case AttemptState.RUNNING:
                self.expire()
            case AttemptState.DUMPING:
                self.ask()
            case AttemptState.STOPPING:
                self.kill()
            case AttemptState.KILLED:
                self.give_up()

    def expire(self) -> None:
        """The job's own deadline passed."""
        self.expired = "job"
        if self.tree.dump_stacks():
            self.state = AttemptState.DUMPING
            self.due = Deadline("stacks", self.options.stacks_s, self.clock)
        else:
            self.ask()

    def interrupt(self, *, again: bool) -> None:
        """The run is over for reasons that are not the job's; a second interrupt has no patience left."""
        if self.state is AttemptState.RUNNING:
            self.interrupted = True
            self.ask()
        elif again and self.state is not AttemptState.KILLED:
            self.kill()

    def ask(self) -> None:
        """SIGTERM, so that the job can stop its engine in order."""
        self.state = AttemptState.STOPPING
        self.tree.ask_to_stop()
        self.due = Deadline("grace", self.options.grace_s, self.clock)

    def kill(self) -> None:
        """SIGKILL to the whole tree."""
        self.state = AttemptState.KILLED
        self.tree.kill()
        self.due = Deadline("kill", KILL_SECONDS, self.clock)

    def give_up(self) -> None:
        """The kernel does not let go of a process: on such a machine no result means anything."""
        left = ", ".join(map(str, self.tree.descendants()))
        raise InfraError(
            "containment", f"{self.job.id}: processes {left} live on {KILL_SECONDS:g} s after SIGKILL"
        )

    def end(self) -> tuple[AttemptOutcome, str]:
        """The tree is gone: free what the attempt held, and classify it."""
        ended = self.tree.wait()
        assert ended is not None, "wait() without a timeout answers"
        self.state, self.due = AttemptState.ENDED, None
        os.close(self.doorbell)
        self.scratch.remove()
        end = ProcessEnd(
            exit_code=ended.exit_code,
            signal=ended.signal,
            deadline=passed_deadline(self.checks) or self.expired,
            interrupted=self.interrupted,
        )
        excused = self.job.source_file.excused if self.job.source_file else ()
        declared = declared_checks(self.job)
        return classify_attempt(checks=self.checks, declared=declared, excused=excused, end=end)

    @property
    def seconds(self) -> float:
        """Wall time since the start; waiting for devices is not in it."""
        return self.clock() - self.began


def declared_checks(job: Job) -> Sequence[str]:
    """The names of the checks that must leave a record; the number of plain tests is pytest's to know."""
    return [check.name for check in job.checks]
