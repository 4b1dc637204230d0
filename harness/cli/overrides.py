"""What `--fault` and `--engine-arg` change, checked before anything starts.

A fault that reaches no engine would leave a healthy run behind, under the name of a faulty one: that is wrong
usage. Where it reaches some of the jobs, the others are named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from harness.errors import UsageError
from harness.suites import EngineKind, Job, parse_reference_arg

# A line that names more jobs than this is not read.
_NAMED = 4


def known_faults(given: Iterable[str]) -> tuple[str, ...]:
    """The ids, each once. Raises UsageError with near names."""
    from harness.faults import get_fault

    return tuple(dict.fromkeys(get_fault(fault).id for fault in given))


def known_engine_args(given: Iterable[str]) -> tuple[str, ...]:
    """NAME=VALUE, as given. Raises UsageError for what the reference engine, the only one that this release
    launches, would refuse."""
    items = tuple(given)
    for item in items:
        name, equals, value = item.partition("=")
        if not (name and equals):
            raise UsageError(f"--engine-arg is {item!r}; allowed: NAME=VALUE, such as comm=gloo")
        try:
            parse_reference_arg(name, value)
        except ValueError as error:
            raise UsageError(f"--engine-arg {item}: {error}") from None
    return items


def check_reach(
    jobs: Sequence[Job],
    *,
    cannot: Callable[[Job], str | None],
    faults: Sequence[str],
    engine_args: Sequence[str],
) -> str | None:
    """What faults and arguments do not reach, as a line for people; None when they reach every job that runs.

    Raises UsageError where a fault reaches none.
    """
    options = [f"--fault {fault}" for fault in faults] + [f"--engine-arg {arg}" for arg in engine_args]
    if not options:
        return None
    told = ", ".join(options)
    missed = {job.id: why for job in jobs if (why := _why_missed(job, cannot)) is not None}
    if faults and len(missed) == len(jobs):
        raise UsageError(
            f"{told}: nothing to act on, since no selected job launches a reference engine here: "
            f"{_named(missed.items())}"
        )
    healthy = [(job.id, missed[job.id]) for job in jobs if job.id in missed and _runs(job, cannot)]
    return f"{told}: does not reach {_named(healthy)}" if healthy else None


def _runs(job: Job, cannot: Callable[[Job], str | None]) -> bool:
    return job.left_out is None and cannot(job) is None


def _why_missed(job: Job, cannot: Callable[[Job], str | None]) -> str | None:
    engines = [engine for engine in (job.engine, job.prefill, job.decode) if engine is not None]
    if not engines:
        return "no engine"
    if all(engine.kind is not EngineKind.REFERENCE for engine in engines):
        return f"engine {engines[0].kind.value}"
    if job.left_out is not None:
        return f"skipped: {job.left_out}"
    return cannot(job)


def _named(pairs: Iterable[tuple[str, str]]) -> str:
    named = [f"{job} ({why})" for job, why in pairs]
    rest = [f"{len(named) - _NAMED} more"] if len(named) > _NAMED else []
    return ", ".join([*named[:_NAMED], *rest])
