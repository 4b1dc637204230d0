"""What `--fault` and `--engine-arg` change, checked before anything starts.

A fault that breaks nothing would leave a healthy run behind, under the name of a faulty one: that is wrong
usage. Where it reaches some of the jobs, the others are named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from harness.errors import UsageError
from harness.faults import Fault, Reach, get_fault
from harness.refengine.config import AttentionBackend, EngineConfig
from harness.suites import EngineKind, EngineSpec, Job, parse_reference_arg

# A line that names more jobs than this is not read.
_NAMED = 4

BACKEND_ARG = "attention-backend"


def known_faults(given: Iterable[str]) -> tuple[str, ...]:
    """The ids, each once. Raises UsageError with near names."""
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
    """What faults and arguments do not reach, as a line for people; None when each reaches every job that runs.

    Raises UsageError where a fault reaches none.
    """
    args = dict(arg.split("=", 1) for arg in engine_args)
    missed = {f"--fault {fault}": _missed(jobs, get_fault(fault), args, cannot) for fault in faults}
    for option, whys in missed.items():
        if len(whys) == len(jobs):
            raise UsageError(
                f"{option}: nothing to act on, since no selected job runs what it breaks: {_named(whys.items())}"
            )
    missed |= {f"--engine-arg {arg}": _missed(jobs, None, args, cannot) for arg in engine_args}
    # One clause for all options that miss the same jobs.
    clauses: dict[str, list[str]] = {}
    for option, whys in missed.items():
        healthy = [(job.id, whys[job.id]) for job in jobs if job.id in whys and _runs(job, cannot)]
        if healthy:
            clauses.setdefault(_named(healthy), []).append(option)
    return "; ".join(f"{', '.join(told)}: does not reach {named}" for named, told in clauses.items()) or None


def _missed(
    jobs: Sequence[Job], fault: Fault | None, args: Mapping[str, str], cannot: Callable[[Job], str | None]
) -> dict[str, str]:
    """The jobs that a fault, or an argument, does not reach, with the reasons."""
    whys = {job.id: _why_missed(job, fault, args) or _why_idle(job, cannot) for job in jobs}
    return {job: why for job, why in whys.items() if why is not None}


def _why_missed(job: Job, fault: Fault | None, args: Mapping[str, str]) -> str | None:
    """Why a fault would break nothing in the job, or why, without one, it has no engine that takes arguments."""
    engines = job.engines
    if not engines:
        return _why_tests_stay_healthy(job, fault)
    if all(engine.kind is not EngineKind.REFERENCE for engine in engines):
        return f"engine {engines[0].kind.value}"
    if fault is None or fault.reach is Reach.ENGINE:
        return None
    if fault.reach is Reach.PAIR:
        return None if job.prefill is not None else "no pair of engines"
    backends = [_attention_backend(engine, args) for engine in engines]
    return None if AttentionBackend.TRITON in backends else f"{BACKEND_ARG} {backends[0]}"


def _why_tests_stay_healthy(job: Job, fault: Fault | None) -> str | None:
    if fault is None or not job.faults:
        return "no engine"
    return None if fault.id in job.faults else "its tests plant others"


def _attention_backend(engine: EngineSpec, args: Mapping[str, str]) -> str:
    return args.get(BACKEND_ARG) or str(engine.args.get(BACKEND_ARG, EngineConfig().attention_backend))


def _runs(job: Job, cannot: Callable[[Job], str | None]) -> bool:
    return _why_idle(job, cannot) is None


def _why_idle(job: Job, cannot: Callable[[Job], str | None]) -> str | None:
    """Why the job does not run at all."""
    return cannot(job) if job.left_out is None else f"skipped: {job.left_out}"


def _named(pairs: Iterable[tuple[str, str]]) -> str:
    named = [f"{job} ({why})" for job, why in pairs]
    rest = [f"{len(named) - _NAMED} more"] if len(named) > _NAMED else []
    return ", ".join([*named[:_NAMED], *rest])
