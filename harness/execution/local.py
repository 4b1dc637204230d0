"""`LocalExecutor`: starts attempts as contained processes on this machine.

One attempt owns a folder under the run, a scratch folder, a doorbell pipe and a containment. Failure rule:
`start` gives back a running attempt, or raises with all of those freed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from harness.containment import Contained, Containment
from harness.errors import InfraError
from harness.execution.command import Command, Launch, job_environment, job_folder, pytest_command
from harness.execution.events import EventTail
from harness.execution.lifecycle import Attempt
from harness.execution.options import RunOptions
from harness.execution.paths import RunPaths
from harness.execution.scratch import Scratch, make_scratch
from harness.planning import Placement
from harness.suites import Job


@dataclass(slots=True, kw_only=True)
class LocalExecutor:
    """See the module's docstring; `command` builds the job's argv, for tests another than pytest's."""

    containment: Containment
    paths: RunPaths
    options: RunOptions = field(default_factory=RunOptions)
    command: Command = pytest_command
    clock: Callable[[], float] = time.monotonic

    def start(self, job: Job, *, n: int, placement: Placement) -> Attempt:
        """Start attempt `n` on its devices.

        Raises InfraError when the machine has no room for it, UsageError when its command cannot be executed.
        """
        with contextlib.ExitStack() as undo, contextlib.ExitStack() as ours_for_now:
            scratch = make_scratch()
            undo.callback(scratch.remove)
            log = ours_for_now.enter_context(self._open_log(job, n))
            doorbell, theirs = os.pipe()
            undo.callback(os.close, doorbell)
            ours_for_now.callback(os.close, theirs)
            os.set_blocking(doorbell, False)
            launch = Launch(
                job=job,
                attempt_dir=self.paths.attempt_dir(job.id, n).absolute(),
                events=self.paths.events(job.id, n).absolute(),
                scratch=scratch.path,
                devices=placement.devices,
                doorbell=theirs,
                baseline_cache=None if self.options.fresh_baselines else self.paths.baselines.absolute(),
                options=self.options,
            )
            tree = self._spawn(launch, log)
            undo.pop_all()
        return self._attempt(launch, n=n, placement=placement, tree=tree, doorbell=doorbell, scratch=scratch)

    def _open_log(self, job: Job, n: int) -> BinaryIO:
        try:
            self.paths.attempt_dir(job.id, n).mkdir(parents=True)
            return self.paths.log(job.id, n).open("wb")
        except OSError as error:
            raise InfraError("reports", f"the attempt's folder cannot be made: {error}") from error

    def _spawn(self, launch: Launch, log: BinaryIO) -> Contained:
        return self.containment.spawn(
            self.command(launch),
            cwd=job_folder(launch) or self.options.cwd or Path.cwd(),
            env=job_environment(launch),
            stdout=log.fileno(),
            pass_fds=(launch.doorbell,),
        )

    def _attempt(
        self,
        launch: Launch,
        *,
        n: int,
        placement: Placement,
        tree: Contained,
        doorbell: int,
        scratch: Scratch,
    ) -> Attempt:
        return Attempt(
            job=launch.job,
            n=n,
            placement=placement,
            tree=tree,
            doorbell=doorbell,
            tail=EventTail(launch.events),
            question_tail=EventTail(self.paths.questions(launch.job.id, n)),
            scratch=scratch,
            log_path=str(self.paths.log(launch.job.id, n)),
            options=self.options,
            clock=self.clock,
        )
