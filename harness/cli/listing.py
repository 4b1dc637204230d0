"""`harness list` and `harness plan`: what would be selected, and where and when it would run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.options import (
    CatalogueOption,
    PatternsArgument,
    PoolOption,
    PoolsOption,
    ProfileChoice,
    ProfileOption,
    SourceOption,
    TagsOption,
    TargetOption,
    TriggerOption,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.planning import PlannedJob
    from harness.suites import Job, Suite

JsonOption = Annotated[bool, typer.Option("--json", help="Print the JSON contract instead of a table.")]


def list_suites(
    patterns: PatternsArgument,
    tags: TagsOption = None,
    trigger: TriggerOption = None,
    target: TargetOption = None,
    catalogue: CatalogueOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the suites that a pattern selects; nothing is started.

    Example: harness list 'dcp/*' --tags smoke
    """
    from harness.cli.output import print_json, print_table
    from harness.cli.selection import selected_suites, with_target

    suites = selected_suites(patterns, tags=tags, trigger=trigger, catalogue=catalogue)
    if target is not None:
        suites = with_target(suites, target)
    if as_json:
        print_json({"schema": 1, "suites": [_suite_json(suite) for suite in suites]})
        return
    rows = [[s.name, ", ".join(p.value for p in s.profiles), ", ".join(s.tags), s.summary] for s in suites]
    print_table(["suite", "profiles", "tags", "summary"], rows)


def _suite_json(suite: Suite) -> dict[str, Any]:
    return {
        "name": suite.name,
        "summary": suite.summary,
        "profiles": [profile.value for profile in suite.profiles],
        "tags": list(suite.tags),
        "triggers": list(suite.triggers),
        "targets": [target.value for target in suite.targets],
        "upstream": suite.upstream,
    }


def plan(
    patterns: PatternsArgument,
    profile: ProfileOption = ProfileChoice.AUTO,
    tags: TagsOption = None,
    trigger: TriggerOption = None,
    pool: PoolOption = None,
    target: TargetOption = None,
    source: SourceOption = None,
    catalogue: CatalogueOption = None,
    pools: PoolsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show where and when each job would run, what it would cost, and what cannot run and why.

    Example: harness plan 'dcp/*' --profile cpu
    """
    from harness.cli.output import print_json
    from harness.cli.selection import selected_jobs, why_not, working_pools
    from harness.cli.targets import find_targets
    from harness.planning import plan as make_plan

    targets = find_targets(target, source=source)
    jobs = selected_jobs(
        patterns, profile=profile, tags=tags, trigger=trigger, catalogue=catalogue, targets=targets
    )
    ready = working_pools(pools, only=pool)
    planned = make_plan(jobs, ready, cannot=_skipped_or(why_not(ready, targets)))
    if as_json:
        cost = sum(line.gpu_minutes for line in planned)
        print_json({"schema": 1, "jobs": [_planned_json(line) for line in planned], "gpu_minutes": cost})
    else:
        _print_plan(planned)


def _skipped_or(cannot: Callable[[Job], str | None]) -> Callable[[Job], str | None]:
    """A declared skip that holds keeps a job from running, as anything else does."""
    return lambda job: cannot(job) if job.left_out is None else f"skipped: {job.left_out}"


def _planned_json(line: PlannedJob) -> dict[str, Any]:
    return {
        "id": line.id,
        "suite": line.suite,
        "profile": line.profile,
        "pool": line.pool,
        "devices": list(line.devices),
        "start_s": line.start_s,
        "estimate_s": line.estimate_s,
        "cannot": line.cannot,
    }


def _print_plan(planned: list[PlannedJob]) -> None:
    from harness.cli.output import print_table
    from harness.suites import show_duration

    can = [line for line in planned if line.cannot is None]
    if can:
        rows = [
            [
                f"+{show_duration(line.start_s or 0)}",
                line.id,
                show_duration(line.estimate_s),
                " ".join(line.devices),
            ]
            for line in can
        ]
        print_table(["start", "job", "estimate", "devices"], rows)
        end = max((line.start_s or 0) + line.estimate_s for line in can)
        cost = sum(line.gpu_minutes for line in can)
        count = f"{len(can)} job{'s' * (len(can) > 1)}"
        print(f"\n{count}, done in about {show_duration(end)}, {round(cost, 1):g} GPU-minutes")
    cannot = [line for line in planned if line.cannot is not None]
    if cannot:
        print("\n" * bool(can) + f"{len(cannot)} cannot run here:")
        print_table(["job", "why"], [[line.id, line.cannot or ""] for line in cannot])
