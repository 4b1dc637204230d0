"""`harness reads table|compare`: from which source each consumer of SGLang takes its DCP topology."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from harness.ledger import Ledger
    from harness.reads.compare import Comparison, Rows
    from harness.reads.table import Row, Table

app = typer.Typer(
    help="Which source of topology each consumer of SGLang reads; what two runs differ in.",
    no_args_is_help=True,
)

# Beside the suite of the same name.
TABLE_FILE = Path("sglang/_dcp_reads.yaml")
# Of a column of the table: every name of a source fits.
WIDEST = 16


@app.callback()
def reads() -> None:
    """What the suite sglang/dcp_reads expects and found: seed, ps or live, by consumer and role.

    Example: harness reads table
    """


@app.command("table")
def show_table(
    pattern: Annotated[str, typer.Argument(help="Only these consumers, such as 'scheduler.*'.")] = "*",
    catalogue: Annotated[
        Path | None, typer.Option(envvar="HARNESS_SUITES", help="Catalogue folder (default: suites/).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Print the expectation: consumer, role and version, with the source that each reads.

    Example: harness reads table 'scheduler.*'
    """
    from fnmatch import fnmatchcase

    from harness.cli.output import print_json, print_table
    from harness.cli.places import catalogue_folder
    from harness.errors import UsageError
    from harness.reads.registry import load_consumers
    from harness.reads.table import load_table

    table = load_table(catalogue_folder(catalogue) / TABLE_FILE, load_consumers())
    rows = [row for name, row in table.rows.items() if fnmatchcase(name, pattern)]
    if not rows:
        raise UsageError(f"no consumer is called {pattern!r}; see: harness reads table")
    if as_json:
        print_json({"schema": 1, "versions": dict(table.versions), "rows": [_json_row(row) for row in rows]})
    else:
        print_table(["consumer", "role", *table.versions, "change", "reads"], list(_lines(table, rows)))


@app.command("compare")
def compare_runs(
    before: Annotated[str, typer.Argument(help="Run id, or `latest`.")],
    after: Annotated[str, typer.Argument(help="Run id, or `latest`.")],
    reports: Annotated[
        Path | None, typer.Option(envvar="HARNESS_REPORTS", help="Folder of runs (default: reports/).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Say which consumers read another source in the second run, with the numbers that were used.

    Example: harness reads compare 20261129-1500-0517 latest
    """
    from harness.cli.output import print_json
    from harness.cli.places import reports_folder
    from harness.ledger import Ledger
    from harness.reads.compare import compare

    with Ledger.open(reports_folder(reports) / "ledger.db", create=False) as ledger:
        comparison = compare(_rows_of(ledger, before), _rows_of(ledger, after))
    if as_json:
        print_json(_json_comparison(comparison))
    else:
        _print_comparison(comparison)


def _rows_of(ledger: Ledger, run: str) -> Rows:
    """The rows of a run's last job that drove consumers. Raises UsageError where none did."""
    from harness.errors import UsageError

    record = ledger.load_run(run)
    for job in reversed(record.jobs):
        if any("consumer" in check.figures for check in job.last_checks):
            return {check.name: check.figures for check in job.last_checks}
    raise UsageError(
        f"run {record.run} drove no consumers; first: harness run sglang/dcp_reads --target sglang"
    )


def _lines(table: Table, rows: list[Row]) -> Any:
    """One line a consumer and role; `*` marks a role in which upstream left a row open."""
    for row in rows:
        for role, cells in row.expected.items():
            known_open = row.known_open.get(role)
            name = f"{role.value}*" if known_open else role.value
            changes = " ".join(f"#{change}" for change in row.changes[role])
            told = f"{row.what} (* known open: {known_open})" if known_open else row.what
            sources = [_short(cells[version].source) for version in table.versions]
            yield [row.consumer, name, *sources, changes, told]


def _short(source: str) -> str:
    """A fact may be a sentence; --json has it whole."""
    return source if len(source) <= WIDEST else source[: WIDEST - 1] + "…"


def _print_comparison(comparison: Comparison) -> None:
    from harness.cli.output import print_table

    print(comparison.headline)
    if comparison.moved:
        print()
        rows = [
            [each.row, each.before, each.after, " ".join(f"#{change}" for change in each.changes)]
            for each in comparison.moved
        ]
        print_table(["row", comparison.before, comparison.after, "change"], rows)
    for told, names in (
        ("moved without a change that says so", comparison.unexplained),
        ("belong to a change and did not move", comparison.stayed),
    ):
        if names:
            print(f"\n{told}: {', '.join(names)}")
    for name, reason in comparison.left_out.items():
        print(f"not compared: {name}: {reason}")


def _json_row(row: Row) -> dict[str, Any]:
    return {
        "consumer": row.consumer,
        "what": row.what,
        "changes": {role.value: list(changes) for role, changes in row.changes.items()},
        "note": row.note,
        "known_open": {role.value: reason for role, reason in row.known_open.items()},
        "expected": {
            role.value: {
                version: {"source": cell.source, "reason": cell.reason} for version, cell in cells.items()
            }
            for role, cells in row.expected.items()
        },
    }


def _json_comparison(comparison: Comparison) -> dict[str, Any]:
    return {
        "schema": 1,
        "headline": comparison.headline,
        "before": comparison.before,
        "after": comparison.after,
        "compared": comparison.compared,
        "moved": [
            {"row": each.row, "before": each.before, "after": each.after, "changes": list(each.changes)}
            for each in comparison.moved
        ],
        "unexplained": list(comparison.unexplained),
        "stayed": list(comparison.stayed),
        "not_compared": dict(comparison.left_out),
    }
