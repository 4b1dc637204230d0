"""Whether a job can run here at all, and if not, why: sentences that a person can act on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from harness.planning.pools import ReadyPool
from harness.suites import Extra, Job, Target, extras_needed


def devices_needed(job: Job) -> int:
    """How many devices of one pool the job occupies: GPUs, or slots of the CPU pool."""
    return (job.needs.cpu if job.needs.gpu is None else job.needs.count) or 1


def candidates(job: Job, pools: Iterable[ReadyPool]) -> list[ReadyPool]:
    """The pools that could hold the job when idle, in order of name."""
    fitting = [
        pool for pool in pools if pool.gpu == job.needs.gpu and len(pool.devices) >= devices_needed(job)
    ]
    return sorted(fitting, key=lambda pool: pool.name)


def cannot_run(
    job: Job,
    pools: Mapping[str, ReadyPool],
    *,
    launchable: Collection[str],
    checks: Collection[str],
    environments: Mapping[str, str | None] = MappingProxyType({}),
    extras: Collection[Extra] = (),
    engine_args: Mapping[str, str] = MappingProxyType({}),
) -> str | None:
    """Every reason why this release cannot run the job here, in one line; None when it can.

    `launchable` are the engine kinds, `checks` the check names that this release implements. `environments`
    says of each target that needs one why its environment cannot be used, None when it can; `extras` are those
    that are installed, `engine_args` what the run sets on top of the suite's.
    """
    reasons = [
        *_no_pool(job, pools.values()),
        *_no_target(job, environments),
        *_no_source(job),
        *(extra.missing for extra in extras_needed(job, engine_args) if extra not in extras),
        *(
            f"engine kind {kind} cannot be launched by this release"
            for kind in _engine_kinds(job)
            if kind not in launchable
        ),
        *(
            f"check {name} is not implemented by this release"
            for name in dict.fromkeys(check.name for check in job.checks)
            if name not in checks
        ),
    ]
    return "; ".join(reasons) or None


def _no_target(job: Job, environments: Mapping[str, str | None]) -> list[str]:
    """Why the job cannot look at its target here, or nothing."""
    if job.python is not None and job.python not in list(Target):
        return [f"virtual environment {job.python} cannot be used by this release"]
    if job.target not in job.targets:
        return [f"the suite has no target {job.target} (it has {' and '.join(job.targets)})"]
    if job.target is Target.REFERENCE:
        return []
    why = environments.get(job.target, f"there is no environment for {job.target}")
    return [] if why is None else [why]


def _no_source(job: Job) -> list[str]:
    """Why a suite of the engine's own tests has nothing to run, or nothing."""
    if job.source_file is not None:
        return [job.source_file.missing] if job.source_file.missing else []
    if job.source_tests is None:
        return []
    return [
        f"the tests come from a checkout of the engine: harness run {job.suite} --source PATH",
    ]


def _engine_kinds(job: Job) -> list[str]:
    """The kinds of all engines of the job, each once."""
    specs = (job.engine, job.prefill, job.decode, job.baseline)
    return list(dict.fromkeys(spec.kind.value for spec in specs if spec is not None))


def _no_pool(job: Job, pools: Iterable[ReadyPool]) -> list[str]:
    """The reason why no pool can hold the job, or nothing."""
    if candidates(job, pools):
        return []
    gpu, count = job.needs.gpu, devices_needed(job)
    of_kind = sorted((pool for pool in pools if pool.gpu == gpu), key=lambda pool: pool.name)
    slots = f"{count} cpu slot{'s' * (count > 1)}"
    wanted = f"no pool has {count} × {gpu} here" if gpu else f"needs {slots}"
    considered = ", ".join(sorted(pool.name for pool in pools)) or "none"
    nothing = f"no pool of {gpu or 'cpu slots'} among those to choose from ({considered})"
    clauses = ", ".join(pool.describe() for pool in of_kind) or nothing
    return [f"{wanted}: {clauses}" if gpu else f"{wanted}, {clauses}"]
