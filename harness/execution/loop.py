"""The loop of a run: one thread that waits for what happens and does what follows.

It waits in one select() for doorbells (a job streamed something), pidfds (a job's tree is gone), signals,
and the next deadline. Each turn starts what fits, waits, and handles what came. A job goes round: placed →
attempt → classified → placed again, or judged.

Failure rule: an attempt's trouble is its own result and never ends the loop. What does end it (the ledger
cannot be written, a process survives SIGKILL) leaves through `close`, which kills all trees first.
"""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Iterable, Sequence

from harness.containment import KILL_SECONDS
from harness.errors import InfraError
from harness.execution.lifecycle import Attempt, AttemptState, News
from harness.execution.local import LocalExecutor
from harness.execution.options import RunOptions
from harness.execution.record import JobProgress, Recorder
from harness.execution.signals import Interrupts
from harness.execution.slots import LOOK_AGAIN_SECONDS, SlotLocks
from harness.planning import Placement, Policy, ReadyPool
from harness.suites import Job
from harness.verdict import AttemptOutcome, AttemptRecord, Verdict

RED_VERDICTS = frozenset({Verdict.FAILED, Verdict.TIMEOUT, Verdict.FLAKY})


class RunLoop:
    """Runs jobs to their verdicts. `stopped` says why nothing new is started any more."""

    def __init__(
        self,
        jobs: Sequence[Job],
        *,
        pools: Iterable[ReadyPool],
        executor: LocalExecutor,
        recorder: Recorder,
        locks: SlotLocks,
        options: RunOptions,
    ) -> None:
        pools = tuple(pools)
        self._devices = frozenset(device for pool in pools for device in pool.devices)
        self._policy = Policy(pools)
        self._executor = executor
        self._recorder = recorder
        self._locks = locks
        self._options = options
        self._progress = {job.id: JobProgress(job=job) for job in jobs}
        self._running: dict[str, Attempt] = {}
        self._selector = selectors.DefaultSelector()
        self._held_elsewhere = False
        self.stopped: str | None = None
        self.interrupted = False
        for job in jobs:
            self._policy.submit(job)

    def run(self) -> None:
        """Until every job has its verdict, also after an interrupt."""
        with Interrupts() as interrupts:
            self._selector.register(interrupts.fd, selectors.EVENT_READ, interrupts)
            try:
                while self._policy.waiting or self._running:
                    self._start_what_fits()
                    if self._running or self._policy.waiting:
                        self._handle(self._selector.select(self._patience()))
                    self._advance_what_is_due()
            finally:
                self._close()

    def _start_what_fits(self) -> None:
        while self._policy.waiting and (placement := self._place()) is not None:
            self._start(placement)

    def _place(self) -> Placement | None:
        """Lock all that is free, let the policy choose among it, and let go of the rest."""
        free = self._devices - self._policy.busy
        ours = self._locks.take(sorted(free))
        placement = self._policy.next_start(time.monotonic(), withheld=free - ours)
        self._locks.release(ours - set(placement.devices if placement else ()))
        self._held_elsewhere = placement is None and ours != free
        return placement

    def _start(self, placement: Placement) -> None:
        progress = self._progress[placement.job_id]
        job, n = progress.job, len(progress.attempts) + 1
        log_path = str(self._executor.paths.log(job.id, n))
        self._recorder.attempt_started(job, n=n, placement=placement, log_path=log_path)
        try:
            attempt = self._executor.start(job, n=n, placement=placement)
        except InfraError as error:
            self._attempt_over(placement, n=n, outcome=AttemptOutcome.INFRA, reason=str(error))
            return
        self._running[job.id] = attempt
        self._selector.register(attempt.doorbell, selectors.EVENT_READ, attempt)
        self._selector.register(attempt.tree.pidfd, selectors.EVENT_READ, attempt)

    def _patience(self) -> float | None:
        """Seconds until something has to be done even if nothing happens; None for no end."""
        moments = [attempt.due.remaining() for attempt in self._running.values() if attempt.due is not None]
        if self._held_elsewhere and self._policy.waiting:
            moments.append(LOOK_AGAIN_SECONDS)
        return min(moments, default=None)

    def _handle(self, ready: Iterable[tuple[selectors.SelectorKey, int]]) -> None:
        for key, _ in ready:
            if isinstance(key.data, Interrupts):
                for _ in range(key.data.count()):
                    self._interrupt()
            elif key.data.state is not AttemptState.ENDED:
                self._handle_attempt(key.data, key.fd)

    def _handle_attempt(self, attempt: Attempt, descriptor: int) -> None:
        if descriptor == attempt.tree.pidfd:
            self._end(attempt)
            return
        if not attempt.answer():
            self._selector.unregister(attempt.doorbell)
        self._record(attempt, attempt.look())

    def _record(self, attempt: Attempt, news: News) -> None:
        """Questions first: whoever is told of a check may ask for them."""
        if news.asked:
            self._recorder.questions_asked(attempt.job, n=attempt.n, asked=news.asked)
        if news.checks:
            self._recorder.checks_finished(attempt.job, n=attempt.n, checks=news.checks)

    def _advance_what_is_due(self) -> None:
        for attempt in list(self._running.values()):
            if attempt.due is not None and attempt.due.passed:
                attempt.advance()

    def _interrupt(self) -> None:
        again, self.interrupted = self.interrupted, True
        self._stop("the run was interrupted")
        for attempt in self._running.values():
            attempt.interrupt(again=again)

    def _stop(self, reason: str) -> None:
        """Start nothing new: what waits is judged now, by the attempts it made, if any."""
        self.stopped = self.stopped or reason
        for job_id in self._policy.waiting:
            self._policy.withdraw(job_id)
            self._recorder.job_finished(self._progress[job_id], not_run=self.stopped)

    def _end(self, attempt: Attempt) -> None:
        """The attempt's tree is gone."""
        self._forget(attempt)
        news = attempt.look()
        outcome, reason = attempt.end()  # frees what it held, before anything is written that might fail
        self._record(attempt, news)
        self._attempt_over(attempt.placement, n=attempt.n, outcome=outcome, reason=reason, attempt=attempt)

    def _attempt_over(
        self,
        placement: Placement,
        *,
        n: int,
        outcome: AttemptOutcome,
        reason: str,
        attempt: Attempt | None = None,
    ) -> None:
        """Record the attempt, free its devices, and send the job round again or judge it."""
        progress = self._progress[placement.job_id]
        record = AttemptRecord(
            n=n,
            outcome=outcome,
            node=self._recorder.node,
            devices=list(placement.devices),
            reason=reason,
            checks=tuple(attempt.checks) if attempt else (),
            seconds=attempt.seconds if attempt else 0.0,
            log_path=str(self._executor.paths.log(placement.job_id, n)),
        )
        progress.attempts.append(record)
        self._recorder.attempt_finished(progress.job, record)
        self._policy.finished(placement.job_id)
        self._locks.release(placement.devices)
        self._go_on(progress)

    def _go_on(self, progress: JobProgress) -> None:
        another = progress.wants_another(repeat=self._options.repeat)
        if another and self.stopped is None and not self._fails_fast(progress):
            self._policy.submit(progress.job)
            return
        cut_short = another or progress.attempts[-1].outcome is AttemptOutcome.INTERRUPTED
        verdict = self._recorder.job_finished(progress, not_run=self.stopped if cut_short else None)
        if self._options.fail_fast and verdict in RED_VERDICTS:
            self._stop(f"stopped after {progress.job.id}: {verdict} (--fail-fast)")

    def _fails_fast(self, progress: JobProgress) -> bool:
        red = {AttemptOutcome.FAILED, AttemptOutcome.TIMEOUT}
        return self._options.fail_fast and any(attempt.outcome in red for attempt in progress.attempts)

    def _forget(self, attempt: Attempt) -> None:
        del self._running[attempt.job.id]
        self._selector.unregister(attempt.tree.pidfd)
        if attempt.doorbell in self._selector.get_map():
            self._selector.unregister(attempt.doorbell)

    def _close(self) -> None:
        """Nothing outlives the loop, whatever ended it."""
        for attempt in self._running.values():
            attempt.tree.kill()
        for attempt in self._running.values():
            attempt.tree.wait(KILL_SECONDS)
            attempt.scratch.remove()
            os.close(attempt.doorbell)
        self._locks.close()
        self._selector.close()
