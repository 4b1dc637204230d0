"""The tasks that `accuracy` scores: *sums* (synthetic) and GSM8K."""

from __future__ import annotations

from harness.checks.tasks.base import Task
from harness.suites.check_params import AccuracyParams


def load_task(params: AccuracyParams) -> Task:
    """The task that a check names, with its data. Only the task that is wanted is imported.

    Raises UsageError for data that is not the published data set, InfraError where it cannot be fetched.
    """
    if params.task == "sums":
        from harness.checks.tasks import sums

        return sums.load()
    from harness.checks.tasks import gsm8k

    return gsm8k.load(params.data)
