"""`harness show`: a finished or running run, again; its verdicts, or the questions that its checks asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from harness.ledger import AttemptQuestions, Ledger
    from harness.verdict import JobRecord, RunRecord


def show(
    run: Annotated[str, typer.Argument(help="Run id, or `latest`.")] = "latest",
    job: Annotated[str | None, typer.Argument(help="Only this job, such as dcp/parity_dcp4@cpu.")] = None,
    questions: Annotated[
        bool, typer.Option("--questions", help="Show the scored questions of the job, flips first.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="With --questions: also those that were answered correctly.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSON contract instead.")] = False,
    reports: Annotated[
        Path | None, typer.Option(envvar="HARNESS_REPORTS", help="Folder of runs (default: reports/).")
    ] = None,
) -> None:
    """Show a run from the ledger: verdicts, checks, attempts. Works while it runs, and after a crash.

    Example: harness show latest dcp/parity_dcp4@cpu

    Example: harness show latest dcp/gsm8k_dcp4@cpu --questions
    """
    from dataclasses import replace

    from harness.cli.places import reports_folder
    from harness.errors import UsageError
    from harness.ledger import Ledger

    if everything and not questions:
        raise UsageError("--all goes with --questions only")
    with Ledger.open(reports_folder(reports) / "ledger.db", create=False) as ledger:
        record = ledger.load_run(run)
        if job is not None:
            jobs = tuple(found for found in record.jobs if job in (found.id, found.suite))
            if not jobs:
                known = ", ".join(found.id for found in record.jobs)
                raise UsageError(f"run {record.run} has no job {job!r}; it has: {known}")
            record = replace(record, jobs=jobs)
        asked = _questions(ledger, record) if questions else []
    if questions:
        _show_questions(record, asked, everything=everything, as_json=as_json)
    else:
        _show_run(record, one_job=job is not None, as_json=as_json)


def _show_run(record: RunRecord, *, one_job: bool, as_json: bool) -> None:
    from rich.console import Console

    from harness.cli.output import print_json
    from harness.report import print_job, print_summary
    from harness.verdict import to_json

    if as_json:
        print_json(to_json(record))
    elif one_job:
        for found in record.jobs:
            print_job(record, found, Console())
    else:
        print_summary(record, Console())


def _questions(ledger: Ledger, record: RunRecord) -> list[tuple[JobRecord, AttemptQuestions]]:
    """The jobs that asked something, with what. Raises UsageError where none did."""
    from harness.errors import UsageError

    found = [(job, ledger.questions(record.run, job.id)) for job in record.jobs]
    asked = [(job, questions) for job, questions in found if questions.asked]
    if not asked:
        jobs = ", ".join(job.id for job in record.jobs)
        raise UsageError(
            f"run {record.run} has no question records of {jobs}: only scored checks, such as accuracy, leave "
            "them, and none has finished a batch of questions there"
        )
    return asked


def _show_questions(
    record: RunRecord, found: list[tuple[JobRecord, AttemptQuestions]], *, everything: bool, as_json: bool
) -> None:
    from harness.cli.output import print_json, print_table
    from harness.report import QUESTION_COLUMNS, question_tables, questions_json

    if as_json:
        jobs = [{"id": job.id, "attempt": each.n, "questions": questions_json(each)} for job, each in found]
        print_json({"schema": 1, "run": record.run, "jobs": jobs})
        return
    for job, each in found:
        for table in question_tables(each.asked, everything=everything):
            print(f"{job.id} attempt {each.n}, {_asked_for(job, table.check)}: {table.headline}")
            if table.rows:
                print_table(QUESTION_COLUMNS, table.rows)
            if table.hidden:
                print(
                    f"{table.hidden:,} more were answered correctly by whoever was asked (--all shows them)"
                )
            print()


def _asked_for(job: JobRecord, check: str) -> str:
    """The check, and its task where it lived to tell: a suite's name may be that of another task."""
    task = next((found.figures.get("task") for found in job.last_checks if found.name == check), None)
    return f"{check}, {task}" if task else check
