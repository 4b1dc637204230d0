"""`execute`: run jobs here, from the first to the last verdict. Called by `harness run`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from harness.containment import Containment, check_nesting, choose_containment
from harness.execution.command import Command, pytest_command
from harness.execution.local import LocalExecutor
from harness.execution.loop import RunLoop
from harness.execution.options import RunOptions
from harness.execution.paths import RunPaths
from harness.execution.record import JobProgress, Recorder
from harness.execution.scratch import sweep_scratch
from harness.execution.slots import SlotLocks
from harness.ledger import Ledger
from harness.planning import ReadyPool
from harness.suites import Job
from harness.verdict import LiveView, RunRecord


def execute(
    jobs: Sequence[Job],
    *,
    pools: Mapping[str, ReadyPool],
    ledger: Ledger,
    run_id: str,
    paths: RunPaths,
    view: LiveView,
    cannot: Callable[[Job], str | None],
    options: RunOptions | None = None,
    containment: Containment | None = None,
    command: Command = pytest_command,
    clock: Callable[[], float] = time.monotonic,
) -> RunRecord:
    """Run the jobs of the run `run_id`, which the caller started in the ledger; returns what became of it.

    Every job has a verdict in the result, also after SIGINT or SIGTERM (then `interrupted` is set); the
    ledger holds each result from the moment it is known. Call it from the main thread. Raises UsageError when
    a job's deadlines do not nest or nothing can be written, InfraError when a process survives SIGKILL; no
    job's process is left otherwise. `command` and `clock` (seconds) are for tests.
    """
    options = options or RunOptions()
    containment = containment or choose_containment()
    recorder = Recorder(ledger=ledger, run=run_id, view=view, options=options)
    for job in jobs:
        check_nesting({f"job {job.id}": job.timeout_s, "launch": job.launch_timeout_s})
    try:
        paths.create()
        sweep_scratch()
        recorder.run_started(jobs)
        runnable = _set_aside(jobs, recorder, cannot)
        options = replace(options, gated_checks=count_gated(runnable) * options.repeat)
        loop = RunLoop(
            runnable,
            pools=pools.values(),
            executor=LocalExecutor(
                containment=containment, paths=paths, options=options, command=command, clock=clock
            ),
            recorder=recorder,
            locks=SlotLocks(paths.slots),
            options=options,
        )
        loop.run()
        ledger.end_run(run_id, interrupted=loop.interrupted)
    finally:
        view.close()
    return ledger.load_run(run_id)


def count_gated(jobs: Sequence[Job]) -> int:
    """The checks with gates among these jobs; at least 1, so that an allowance can be shared."""
    return max(1, sum(check.params.gated for job in jobs for check in job.checks))


def _set_aside(jobs: Sequence[Job], recorder: Recorder, cannot: Callable[[Job], str | None]) -> list[Job]:
    """The jobs that will run; those that are skipped or cannot run get their verdict here."""
    runnable = []
    for job in jobs:
        if job.left_out is not None:
            recorder.job_finished(JobProgress(job=job), skipped=job.left_out)
        elif (reason := cannot(job)) is not None:
            recorder.job_finished(JobProgress(job=job), not_run=reason)
        else:
            runnable.append(job)
    return runnable
