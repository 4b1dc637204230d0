"""From what a user typed to jobs and pools: the first steps of `run`, `plan` and `list`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
    load_catalogue,
    load_yaml,
    parse_target,
    read_source_tests,
    select,
    source_jobs,
)

if TYPE_CHECKING:
    from harness.cli.targets import Targets


def selected_suites(
    patterns: list[str], *, tags: list[str] | None, trigger: str | None, catalogue: Path | None
) -> list[Suite]:
    """Load the catalogue and select. Raises SourceErrors for bad files, UsageError for an empty selection."""
    found = load_catalogue(catalogue_folder(catalogue))
    return select(found, patterns, tags=split_commas(tags or []), trigger=trigger)


def selected_jobs(
    patterns: list[str],
    *,
    profile: ProfileChoice,
    tags: list[str] | None,
    trigger: str | None,
    catalogue: Path | None,
    targets: Targets | None = None,
) -> list[Job]:
    """The jobs of the selected suites, by default each for its suite's own target.

    Raises UsageError when the profile leaves none.
    """
    suites = selected_suites(patterns, tags=tags, trigger=trigger, catalogue=catalogue)
    names = list(ProfileName) if profile is ProfileChoice.AUTO else [ProfileName(profile.value)]
    jobs = [
        job
        for suite in suites
        for name in names
        for point in expand(suite, name, target=None if targets is None else targets.asked)
        for job in _with_source(point, None if targets is None else targets.source)
    ]
    if not jobs:
        raise UsageError(
            f"no selected suite has a {profile.value} profile: {', '.join(s.name for s in suites)}"
        )
    return jobs


def _with_source(job: Job, source: Path | None) -> list[Job]:
    """The job, or one for each of the engine's own test files where the suite runs those and there are some."""
    if job.source_tests is None or source is None:
        return [job]
    return source_jobs(job, read_source_tests(job.source_tests, root=source))


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


def why_not(pools: Mapping[str, ReadyPool], targets: Targets) -> Callable[[Job], str | None]:
    """For planning: the reason why this machine and this release cannot run a job."""
    return lambda job: cannot_run(
        job, pools, launchable=LAUNCHABLE, checks=CHECKS.keys(), environments=targets.missing
    )


def split_commas(values: Iterable[str]) -> list[str]:
    """`["a,b", "c"]` → `["a", "b", "c"]`: lists may be given either way."""
    return [part.strip() for value in values for part in value.split(",") if part.strip()]
