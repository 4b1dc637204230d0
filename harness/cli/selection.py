"""From what a user typed to jobs and pools: the first steps of `run`, `plan` and `list`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.checks import CHECKS
from harness.cli.options import ProfileChoice
from harness.cli.places import catalogue_folder, pools_file
from harness.containment import NvmlInventory
from harness.engines import LAUNCHABLE
from harness.errors import Mark, UsageError
from harness.planning import ReadyPool, cannot_run, parse_pools, ready_pools
from harness.suites import (
    Job,
    ProfileName,
    Suite,
    expand,
    idle_exclusions,
    installed_extras,
    load_catalogue,
    load_yaml,
    named_by_profile,
    parse_target,
    read_source_tests,
    select,
    select_jobs,
    source_jobs,
)

if TYPE_CHECKING:
    from harness.cli.targets import Targets


def selected_suites(
    patterns: list[str],
    *,
    tags: list[str] | None,
    trigger: str | None,
    catalogue: Path | None,
    with_source: bool = False,
) -> list[Suite]:
    """Load the catalogue and select. Raises SourceErrors for bad files, UsageError for an empty selection."""
    found = load_catalogue(catalogue_folder(catalogue))
    return select(found, patterns, tags=split_commas(tags or []), trigger=trigger, with_source=with_source)


def selected_jobs(
    patterns: list[str],
    *,
    profile: ProfileChoice,
    tags: list[str] | None,
    trigger: str | None,
    catalogue: Path | None,
    targets: Targets | None = None,
) -> list[Job]:
    """The jobs that the patterns mean, by default each for its suite's own target. Says on stderr which
    exclusions of suites match nothing in the source.

    Raises UsageError when the profile leaves none, and for a pattern that names jobs and means none.
    """
    asked, source = (None, None) if targets is None else (targets.asked, targets.source)
    suites = selected_suites(
        patterns, tags=tags, trigger=trigger, catalogue=catalogue, with_source=source is not None
    )
    names = list(ProfileName) if profile is ProfileChoice.AUTO else [ProfileName(profile.value)]
    points = [job for suite in suites for name in names for job in expand(suite, name, target=asked)]
    if not points:
        raise UsageError(
            f"no selected suite has a {profile.value} profile: {', '.join(s.name for s in suites)}"
        )
    if source is None:
        return select_jobs(points, patterns, suites=suites)
    jobs = select_jobs(
        [job for point in points for job in _of_source(point, source)], patterns, suites=suites
    )
    for note in _idle_exclusions(points, jobs, source):
        print(f"harness: {note}", file=sys.stderr)
    return jobs


def _of_source(job: Job, source: Path) -> list[Job]:
    """The job, or one for each of the engine's own test files where the suite runs those."""
    if job.source_tests is None:
        return [job]
    return source_jobs(job, read_source_tests(job.source_tests, root=source))


def _idle_exclusions(points: Sequence[Job], jobs: Sequence[Job], source: Path) -> list[str]:
    """What suites leave out that this source has not, each once; of one file, where only that was asked for."""
    chosen = {(job.suite, job.source_file.path) for job in jobs if job.source_file is not None}
    notes: dict[str, None] = {}
    for point in points:
        if point.source_tests is None:
            continue
        listing = read_source_tests(point.source_tests, root=source)
        files = {path for found in listing.values() for path in found}
        whole = all((point.suite, path) in chosen for path in files)
        for entry in idle_exclusions(point.source_tests, listing):
            if whole or (point.suite, entry.file) in chosen:
                what = f"{entry.file}::{entry.test}" if entry.test else entry.file
                notes[f"{point.suite} excludes {what}, and this source has nothing of that name"] = None
    return list(notes)


def asked_by_profile(jobs: Sequence[Job], patterns: Sequence[str], profile: ProfileChoice) -> set[str]:
    """The ids of the jobs that must run since their profile was named: by the option, or in a pattern."""
    if profile is not ProfileChoice.AUTO:
        return {job.id for job in jobs}
    return named_by_profile(jobs, patterns)


def with_target(suites: list[Suite], given: str) -> list[Suite]:
    """Those that have the target. Raises UsageError for an unknown one, and when no suite is left."""
    target, _ = parse_target(given)
    if not (kept := [suite for suite in suites if target in suite.targets]):
        raise UsageError(f"no selected suite has the target {target}: {', '.join(s.name for s in suites)}")
    return kept


def working_pools(given: Path | None, *, only: str | None) -> dict[str, ReadyPool]:
    """The configured pools with the devices that are really here; `only` keeps one of them."""
    file = pools_file(given)
    pools = parse_pools(load_yaml(file), mark=Mark(file, 1, 1))
    if only is not None and only not in pools:
        raise UsageError(f"no pool {only!r}; there are: {', '.join(sorted(pools))}")
    ready = ready_pools(pools, NvmlInventory())
    return {name: pool for name, pool in ready.items() if only in (None, name)}


def why_not(
    pools: Mapping[str, ReadyPool], targets: Targets, *, engine_args: Iterable[str] = ()
) -> Callable[[Job], str | None]:
    """For planning: the reason why this machine and this release cannot run a job with these `NAME=VALUE`."""
    args = dict(arg.split("=", 1) for arg in engine_args)
    extras = installed_extras()
    return lambda job: cannot_run(
        job,
        pools,
        launchable=LAUNCHABLE,
        checks=CHECKS.keys(),
        environments=targets.missing,
        extras=extras,
        engine_args=args,
    )


def split_commas(values: Iterable[str]) -> list[str]:
    """`["a,b", "c"]` → `["a", "b", "c"]`: lists may be given either way."""
    return [part.strip() for value in values for part in value.split(",") if part.strip()]
