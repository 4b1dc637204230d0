"""`harness baseline`: how accurate a healthy engine is, recorded once and held against every later run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.options import CatalogueOption, ProfileChoice, timeout_seconds

if TYPE_CHECKING:
    from harness.checks.references import RecordedBaseline
    from harness.cli.baseline_sources import Source
    from harness.suites import Job

app = typer.Typer(no_args_is_help=True)

DEFAULT_RUNS = 5
# 1,319 questions of a real model took minutes wherever that was measured.
DEFAULT_TIMEOUT = "2h"

BaselinesOption = Annotated[
    Path | None,
    typer.Option(
        envvar="HARNESS_BASELINES", help="File of records (default: configs/baselines.yaml by the catalogue)."
    ),
]


@app.callback()
def baseline() -> None:
    """Recorded baselines: what the `accuracy` check holds a run against.

    Example: harness baseline record 'dcp/gsm8k_*' --profile cpu
    """


@app.command()
def record(
    patterns: Annotated[
        list[str] | None, typer.Argument(help="Suites whose accuracy checks are measured at dcp 1.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="A running engine at dcp 1, in place of suites.")] = None,
    task: Annotated[str | None, typer.Option(help="With --url: sums or gsm8k.")] = None,
    data: Annotated[str | None, typer.Option(help="With --url: path or URL of the GSM8K file.")] = None,
    model: Annotated[
        str | None,
        typer.Option(help="With --url: the model as suites name it (default: as the engine does)."),
    ] = None,
    shots: Annotated[int | None, typer.Option(help="With --url: worked examples in each prompt.")] = None,
    max_new_tokens: Annotated[int | None, typer.Option(help="With --url: limit of an answer.")] = None,
    questions: Annotated[
        int | None, typer.Option(help="Ask this many (default: all that the check may ask).")
    ] = None,
    runs: Annotated[int, typer.Option(help="Runs over all questions; 5 or more.")] = DEFAULT_RUNS,
    timeout: Annotated[str, typer.Option(help="Deadline of one run, such as 20m.")] = DEFAULT_TIMEOUT,
    allow_dirty: Annotated[
        bool, typer.Option("--allow-dirty", help="Record with uncommitted changes; the record says so.")
    ] = False,
    profile: Annotated[
        ProfileChoice, typer.Option(help="Which engines of the suites; auto: all that can be launched here.")
    ] = ProfileChoice.AUTO,
    catalogue: CatalogueOption = None,
    baselines: BaselinesOption = None,
) -> None:
    """Measure the dcp=1 engine of accuracy checks, and write what it scored. One failed request records nothing.

    Example: harness baseline record --url http://127.0.0.1:30000 --task gsm8k --data test.jsonl
    """
    from harness.cli.baseline_record import record_all

    _check_runs(runs)
    asked = {"task": task, "data": data, "shots": shots, "max_new_tokens": max_new_tokens}
    given = {name: value for name, value in asked.items() if value is not None}
    if url is not None:
        sources = _source_at(url, patterns, given, model=model, questions=questions)
    else:
        only_url = [*given, *(["model"] if model else [])]
        sources = _sources_of(patterns, only_url, profile=profile, catalogue=catalogue, questions=questions)
    seconds, file = timeout_seconds(timeout), _file(baselines, catalogue)
    record_all(sources, runs=runs, seconds=seconds, file=file, commit=_commit(file, allow_dirty=allow_dirty))


def _check_runs(runs: int) -> None:
    from harness.checks.references import LEAST_RUNS
    from harness.errors import UsageError

    if runs < LEAST_RUNS:
        raise UsageError(f"--runs is {runs}; allowed: {LEAST_RUNS} or more, which tell how much runs differ")


def _source_at(
    url: str,
    patterns: list[str] | None,
    given: dict[str, Any],
    *,
    model: str | None,
    questions: int | None,
) -> list[Source]:
    from harness.cli.baseline_sources import source_at
    from harness.errors import UsageError

    if patterns:
        raise UsageError("--url is one engine that runs already; allowed: either suites or --url")
    return [source_at(url, given, model=model, questions=questions)]


def _sources_of(
    patterns: list[str] | None,
    only_url: Sequence[str],
    *,
    profile: ProfileChoice,
    catalogue: Path | None,
    questions: int | None,
) -> list[Source]:
    """The sources of suites; the jobs that are left out are named."""
    from harness.cli.baseline_sources import sources_of
    from harness.errors import UsageError

    if not patterns:
        raise UsageError("give suites, such as 'dcp/gsm8k_*', or one engine with --url and --task")
    if only_url:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in only_url)
        raise UsageError(f"{options} goes with --url; a suite has its own")
    sources, others = sources_of(_jobs(patterns, profile=profile, catalogue=catalogue), questions=questions)
    if others:
        print(f"harness: left out {'; '.join(others)}", file=sys.stderr)
    return sources


@app.command("list")
def list_records(
    as_json: Annotated[bool, typer.Option("--json", help="Print the records as JSON.")] = False,
    catalogue: CatalogueOption = None,
    baselines: BaselinesOption = None,
) -> None:
    """List what is recorded, and which suites look for it.

    Example: harness baseline list
    """
    from harness.checks.reference_file import load_baselines
    from harness.cli.output import print_json, print_table

    file = _file(baselines, catalogue)
    records = load_baselines(file)
    jobs = _jobs(["*"], profile=ProfileChoice.AUTO, catalogue=catalogue)
    users = [_users(each, jobs) for each in records]
    if as_json:
        told = [
            each.model_dump(mode="json") | {"used_by": used}
            for each, used in zip(records, users, strict=True)
        ]
        print_json({"schema": 1, "file": str(file), "baselines": told})
    elif records:
        rows = [_row(each, used) for each, used in zip(records, users, strict=True)]
        print_table(["task", "model", "shots", "correct", "flips", "runs", "date", "commit", "used by"], rows)
    else:
        print(f"nothing is recorded in {file} (see: harness baseline record --help)")


def _row(record: RecordedBaseline, users: Sequence[str]) -> list[str]:
    return [
        record.label,
        record.model,
        str(record.configuration.shots),
        f"{record.correct:,} of {record.of:,} ({record.accuracy:.2%})",
        f"{record.flips:,} of {record.compared:,}",
        str(record.runs),
        record.date.isoformat(),
        record.short_commit,
        ", ".join(users) or "no suite",
    ]


def _users(record: RecordedBaseline, jobs: Sequence[Job]) -> list[str]:
    """The jobs whose accuracy checks may look for this record."""
    from harness.checks.launches import as_check_wants
    from harness.checks.references import may_serve
    from harness.cli.baseline_sources import accuracy_params, baseline_launch

    users = []
    for job in jobs:
        launch = baseline_launch(job)
        wanted = [(params, as_check_wants(launch, params)) for params in accuracy_params(job) if launch]
        if any(
            may_serve(record.configuration, params, model=wants.model, dtype=wants.args.get("dtype"))
            for params, wants in wanted
        ):
            users.append(job.id)
    return users


def _jobs(patterns: list[str], *, profile: ProfileChoice, catalogue: Path | None) -> list[Job]:
    from harness.cli.selection import selected_jobs

    return selected_jobs(patterns, profile=profile, tags=None, trigger=None, catalogue=catalogue)


def _file(given: Path | None, catalogue: Path | None) -> Path:
    from harness.checks.reference_file import baselines_path
    from harness.cli.places import catalogue_folder

    return given if given is not None else baselines_path(catalogue=catalogue_folder(catalogue))


def _commit(file: Path, *, allow_dirty: bool) -> str:
    """The commit that the record names. Raises UsageError for one that others could not go back to."""
    from harness.cli.places import harness_sha
    from harness.errors import UsageError

    commit = harness_sha(ignoring=file)
    if commit.endswith("+dirty") and not allow_dirty:
        raise UsageError(
            "the checkout has uncommitted changes, so the record would name a commit that was not measured; "
            "commit them, or give --allow-dirty"
        )
    return commit
