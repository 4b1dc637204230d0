"""Which suites and jobs a command, a comment or a night means: globs over names, points, tags, a trigger.

Selection is a pure function of the catalogue: the order of patterns and suites changes nothing. Whatever
selects nothing raises `UsageError` with what there is, so that a typo never runs zero tests green.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from harness.errors import UsageError
from harness.suites.jobs import Job
from harness.suites.patterns import Pattern, parse_pattern
from harness.suites.suite import Catalogue, Suite

# Three names fit on one line of a terminal.
_NEAR = 3


def select(
    catalogue: Catalogue,
    patterns: Sequence[str],
    *,
    tags: Iterable[str] = (),
    trigger: str | None = None,
    with_source: bool = False,
) -> list[Suite]:
    """The suites that match any pattern, bear all `tags`, and list `trigger`; by name, each once.

    A pattern is a glob over suite names (`*` crosses `/`), perhaps with a point (`select_jobs` keeps its jobs),
    an exact upstream name, or, where a source is given, the name of a test file that a suite takes from there.
    Raises UsageError for a pattern without match, and when tags or trigger leave nothing.
    """
    if not patterns:
        raise UsageError("no pattern was given; allowed: globs over suite names, such as 'dcp/*'")
    chosen = {
        suite.name: suite
        for pattern in patterns
        for suite in _matching(catalogue, parse_pattern(pattern), with_source=with_source)
    }
    named = [chosen[name] for name in sorted(chosen)]
    wanted = sorted(set(tags))
    tagged = [suite for suite in named if set(wanted) <= set(suite.tags)]
    if not tagged:
        have = ", ".join(sorted({tag for suite in named for tag in suite.tags})) or "none"
        raise UsageError(f"no selected suite has the tags {', '.join(wanted)}; tags there: {have}")
    triggered = [suite for suite in tagged if trigger is None or trigger in suite.triggers]
    if not triggered:
        have = ", ".join(sorted({name for suite in tagged for name in suite.triggers})) or "none"
        raise UsageError(f"no selected suite has the trigger {trigger!r}; triggers there: {have}")
    return triggered


def select_jobs(jobs: Sequence[Job], patterns: Sequence[str], *, suites: Sequence[Suite]) -> list[Job]:
    """Those of the jobs of `suites` that any pattern means, in their order.

    Raises UsageError for a pattern with a profile or a point, or that is the name of a file, which means none.
    """
    by_name = {suite.name: suite for suite in suites}
    parsed = [parse_pattern(pattern) for pattern in patterns]
    for pattern in parsed:
        must_match = pattern.is_narrow or not any(pattern.names(suite) for suite in suites)
        if must_match and not any(pattern.wants(job, by_name[job.suite]) for job in jobs):
            named = [job for job in jobs if pattern.names(by_name[job.suite])]
            raise UsageError(
                f"no selected job matches {pattern.text!r}; {_near_jobs(named or jobs, pattern)}"
            )
    return [job for job in jobs if any(pattern.wants(job, by_name[job.suite]) for pattern in parsed)]


def named_by_profile(jobs: Sequence[Job], patterns: Sequence[str]) -> set[str]:
    """The ids of the selected jobs that were asked for with their profile, as in `dcp/parity_dcp4@cpu`."""
    parsed = [pattern for pattern in map(parse_pattern, patterns) if pattern.profile is not None]
    return {
        job.id
        for job in jobs
        if any(fnmatchcase(job.suite, pattern.suite) and pattern.keeps(job) for pattern in parsed)
    }


def _matching(catalogue: Catalogue, pattern: Pattern, *, with_source: bool) -> list[Suite]:
    named = [suite for suite in catalogue.suites if pattern.names(suite)]
    of_file = [suite for suite in catalogue.suites if pattern.may_be_file_of(suite)]
    if found := named + (of_file if with_source else []):
        return found
    if of_file:
        takers = ", ".join(suite.name for suite in of_file)
        raise UsageError(f"{pattern.text!r} is a file that {takers} takes from a source; add --source PATH")
    raise UsageError(f"no suite matches {pattern.text!r}; {_near(catalogue, pattern)}")


def _near(catalogue: Catalogue, pattern: Pattern) -> str:
    upstream = [suite.upstream for suite in catalogue.suites if suite.upstream]
    return _near_names(pattern.suite, [*catalogue.names, *upstream]) or f"{catalogue.root} holds no suite"


def _near_jobs(jobs: Sequence[Job], pattern: Pattern) -> str:
    """In the spelling of the pattern: with the profile where it has one, and files by name or as a point."""
    points = [job.id if pattern.profile else job.id.replace(f"@{job.profile}", "", 1) for job in jobs]
    files = [job.source_file.path for job in jobs if job.source_file is not None]
    return _near_names(pattern.text, points if pattern.is_narrow else files) or "there is none"


def _near_names(given: str, names: Iterable[str]) -> str:
    """`near names: …`, each once; empty where there are no names."""
    near = difflib.get_close_matches(given, list(dict.fromkeys(names)), n=_NEAR, cutoff=0.0)
    return f"near names: {', '.join(near)}" if near else ""
