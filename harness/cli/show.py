"""`harness show`: a finished or running run, again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def show(
    run: Annotated[str, typer.Argument(help="Run id, or `latest`.")] = "latest",
    job: Annotated[str | None, typer.Argument(help="Only this job, such as dcp/parity_dcp4@cpu.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSON contract instead.")] = False,
    reports: Annotated[
        Path | None, typer.Option(envvar="HARNESS_REPORTS", help="Folder of runs (default: reports/).")
    ] = None,
) -> None:
    """Show a run from the ledger: verdicts, checks, attempts. Works while it runs, and after a crash.

    Example: harness show latest dcp/parity_dcp4@cpu
    """
    from dataclasses import replace

    from rich.console import Console

    from harness.cli.output import print_json
    from harness.cli.places import reports_folder
    from harness.errors import UsageError
    from harness.ledger import Ledger
    from harness.report import print_job, print_summary
    from harness.verdict import to_json

    with Ledger.open(reports_folder(reports) / "ledger.db", create=False) as ledger:
        record = ledger.load_run(run)
    if job is not None:
        jobs = tuple(found for found in record.jobs if job in (found.id, found.suite))
        if not jobs:
            known = ", ".join(found.id for found in record.jobs)
            raise UsageError(f"run {record.run} has no job {job!r}; it has: {known}")
        record = replace(record, jobs=jobs)
    if as_json:
        print_json(to_json(record))
    elif job is not None:
        for found in record.jobs:
            print_job(record, found, Console())
    else:
        print_summary(record, Console())
