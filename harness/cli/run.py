"""`harness run`: load → select → plan → execute → judge → report, one line each."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.options import (
    CatalogueOption,
    EngineArgOption,
    PatternsArgument,
    PoolOption,
    PoolsOption,
    ProfileChoice,
    ProfileOption,
    ReportsOption,
    SourceOption,
    TagsOption,
    TargetOption,
    TriggerOption,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from harness.cli.targets import Targets
    from harness.execution import RunOptions
    from harness.planning import ReadyPool
    from harness.suites import Job
    from harness.verdict import RunRecord


def run(
    patterns: PatternsArgument,
    profile: ProfileOption = ProfileChoice.AUTO,
    tags: TagsOption = None,
    trigger: TriggerOption = None,
    pool: PoolOption = None,
    target: TargetOption = None,
    source: SourceOption = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            help="Inject this fault into the engine under test; repeatable. See: harness faults list"
        ),
    ] = None,
    engine_arg: EngineArgOption = None,
    repeat: Annotated[
        int, typer.Option(min=1, help="Run each job this often; a mix of verdicts is flaky.")
    ] = 1,
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", help="Start nothing new after a failure.")
    ] = False,
    fresh_baselines: Annotated[
        bool, typer.Option("--fresh-baselines", help="Ask dcp=1 anew, also what is in the cache.")
    ] = False,
    allow_flaky: Annotated[
        bool, typer.Option("--allow-flaky", help="Do not fail the run for flaky jobs.")
    ] = False,
    require_all: Annotated[
        bool,
        typer.Option("--require-all", help="Exit 3 when any job did not run, also under --profile auto."),
    ] = False,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML here.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the run as JSON here; - is stdout.")] = None,
    catalogue: CatalogueOption = None,
    pools: PoolsOption = None,
    reports: ReportsOption = None,
) -> None:
    r"""Run suites, and leave a verdict for each.

    Exit 0: passed. 1: a job failed, timed out or is flaky. 3: something could not be judged, or nothing ran.
    2: wrong usage.

    Example: harness run 'dcp/*' --tags smoke --junit out.xml

    Example: harness run 'sglang/dcp_units\[file=*layout*]' --source ~/sglang
    """
    from harness.cli.overrides import known_engine_args, known_faults
    from harness.cli.places import reports_folder
    from harness.cli.selection import asked_by_profile, selected_jobs, split_commas, why_not, working_pools
    from harness.cli.targets import find_targets
    from harness.execution import RunOptions

    targets = find_targets(target, source=source)
    jobs = selected_jobs(
        patterns, profile=profile, tags=tags, trigger=trigger, catalogue=catalogue, targets=targets
    )
    options = RunOptions(
        repeat=repeat,
        fail_fast=fail_fast,
        faults=known_faults(fault or []),
        engine_args=known_engine_args(split_commas(engine_arg or [])),
        engine_shas=_engine_shas(),
        environments=targets.environments,
        fresh_baselines=fresh_baselines,
    )
    ready = working_pools(pools, only=pool)
    cannot = why_not(ready, targets, engine_args=options.engine_args)
    _check_reach(jobs, cannot, options=options)
    folder = reports_folder(reports)
    _check_places(folder, junit=junit, json=json)
    record = _execute(jobs, ready, cannot, options=options, folder=folder, quiet=json == Path("-"))
    named = asked_by_profile(jobs, patterns, profile) | _of_target(jobs, targets)
    code = _exit_code(record, named=named, require_all=require_all, allow_flaky=allow_flaky)
    raise typer.Exit(_report(record, junit=junit, json=json, code=code))


def _of_target(jobs: Sequence[Job], targets: Targets) -> set[str]:
    """The jobs that `--target` asks for by name: those that have it, or all where none of them has."""
    if targets.asked is None:
        return set()
    return {job.id for job in jobs if targets.asked in job.targets} or {job.id for job in jobs}


def _check_reach(jobs: Sequence[Job], cannot: Callable[[Job], str | None], *, options: RunOptions) -> None:
    """Refuse a fault that reaches no engine; name the jobs that a fault or an argument does not reach."""
    from harness.cli.overrides import check_reach

    faults, args = options.faults, options.engine_args
    if missed := check_reach(jobs, cannot=cannot, faults=faults, engine_args=args):
        print(f"harness: {missed}", file=sys.stderr)


def _engine_shas() -> Mapping[str, str]:
    """The reference engine is part of this checkout, so its identity is the checkout's."""
    from harness.cli.places import harness_sha

    return {"reference": harness_sha()}


def _check_places(folder: Path, *, junit: Path | None, json: Path | None) -> None:
    """Refuse what could not be written before hours of work are spent on it."""
    from harness.cli.places import make_reports_folder
    from harness.errors import UsageError
    from harness.report import check_writable

    if junit == Path("-"):
        raise UsageError("--junit is -; allowed: a file (stdout is for people, or for --json -)")
    for file in (junit, json):
        if file is not None and file != Path("-"):
            check_writable(file)
    make_reports_folder(folder)


def _execute(
    jobs: list[Job],
    pools: dict[str, ReadyPool],
    cannot: Callable[[Job], str | None],
    *,
    options: RunOptions,
    folder: Path,
    quiet: bool,
) -> RunRecord:
    from rich.console import Console

    from harness.cli.places import harness_sha
    from harness.execution import RunPaths, execute
    from harness.ledger import Ledger
    from harness.report import choose_view

    # JSON on stdout must stay JSON: the talk goes to stderr then.
    console = Console(stderr=quiet)
    with Ledger.open(folder / "ledger.db") as ledger:
        run_id = ledger.start_run(harness_sha=harness_sha(), argv=sys.argv[1:])
        return execute(
            jobs,
            pools=pools,
            ledger=ledger,
            run_id=run_id,
            paths=RunPaths(reports=folder, run=run_id),
            view=choose_view(console),
            cannot=cannot,
            options=options,
        )


def _report(record: RunRecord, *, junit: Path | None, json: Path | None, code: int) -> int:
    """Tell and write what became of the run; `code`, or 3 for a green run whose report could not be written."""
    from rich.console import Console

    from harness.cli.output import print_json
    from harness.report import ReportError, print_summary, write_json, write_junit
    from harness.verdict import to_json

    if json == Path("-"):
        print_json(to_json(record))
    print_summary(record, Console(stderr=json == Path("-")))
    for write, file in ((write_junit, junit), (write_json, json)):
        try:
            if file is not None and file != Path("-"):
                write(record, file)
        except ReportError as error:
            print(f"harness: {error}", file=sys.stderr)
            code = code or error.exit_code
    return code


def _exit_code(record: RunRecord, *, named: set[str], require_all: bool, allow_flaky: bool) -> int:
    """`named` are the jobs that were asked for by profile or target, and so must run."""
    from harness.verdict import Judged, Verdict, exit_code

    judged = [
        Judged(verdict=job.verdict or Verdict.NOT_RUN, asked_by_name=job.id in named) for job in record.jobs
    ]
    return exit_code(judged, require_all=require_all, allow_flaky=allow_flaky, interrupted=record.interrupted)
