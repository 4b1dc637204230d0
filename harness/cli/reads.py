"""`harness reads table|compare`: from which source each consumer of SGLang takes its DCP topology."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from harness.ledger import Ledger
    from harness.reads.compare import Comparison, Moved, Rows
    from harness.reads.table import Row, Table

app = typer.Typer(
    help="Which source of topology each consumer of SGLang reads; what two runs differ in.\n\n"
    "Example: harness reads table 'scheduler.*'",
    no_args_is_help=True,
)

# Beside the suite of the same name.
TABLE_FILE = Path("sglang/_dcp_reads.yaml")
# Of a column of the table: every name of a source fits.
WIDEST = 18
# Of a column of a comparison, where a number follows.
WIDEST_SEEN = 40
# Rows in a list: two sources of one version leave all rows of the changes where they were.
MOST_NAMED = 8


@app.callback()
def reads() -> None:
    """What the suite sglang/dcp_reads expects and found: seed, ps or live, by consumer and role.

    Example: harness reads compare RUN_OF_0.5.17 RUN_OF_0.5.18
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
        older, newer = _rows_of(ledger, before), _rows_of(ledger, after)
    comparison = compare(older.rows, newer.rows, names=_names(older, newer))
    if as_json:
        print_json(_json_comparison(comparison))
    else:
        _print_comparison(comparison)


@dataclass(frozen=True, slots=True)
class _Run:
    """The rows of one run, and what its job calls the engine (`sglang 0.5.18 source 1a2b`), where it says so."""

    rows: Rows
    engine: str


def _names(older: _Run, newer: _Run) -> tuple[str, str]:
    """What the two engines are called: by version alone where that tells them apart."""
    versions = [
        next((str(row["version"]) for row in run.rows.values() if row), "nothing") for run in (older, newer)
    ]
    if versions[0] == versions[1] and older.engine and newer.engine:
        return older.engine, newer.engine
    return versions[0], versions[1]


def _rows_of(ledger: Ledger, run: str) -> _Run:
    """The rows of a run's last job that drove consumers. Raises UsageError where none did."""
    from harness.errors import UsageError

    record = ledger.load_run(run)
    for job in reversed(record.jobs):
        if any("consumer" in check.figures for check in job.last_checks):
            rows = {check.name: check.figures for check in job.last_checks}
            return _Run(rows, job.engine_sha or "")
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
            sources = [_short(cells[version].source, WIDEST) for version in table.versions]
            yield [row.consumer, name, *sources, changes, told]


def _short(told: str, widest: int) -> str:
    """A fact may be a sentence; --json has it whole."""
    return told if len(told) <= widest else told[: widest - 1] + "…"


def _print_comparison(comparison: Comparison) -> None:
    from harness.cli.output import print_table

    print(comparison.headline)
    if comparison.differing:
        print()
        rows = [
            [
                each.row,
                _short(each.before, WIDEST_SEEN),
                _short(each.after, WIDEST_SEEN),
                " ".join(f"#{change}" for change in each.changes),
            ]
            for each in comparison.differing
        ]
        print_table(["row", comparison.before, comparison.after, "change"], rows)
    for told, names in (
        ("moved without a change that says so", comparison.unexplained),
        ("belong to a change and did not move", comparison.stayed),
    ):
        if names:
            rest = len(names) - MOST_NAMED
            more = [f"… {rest} more, in --json"] if rest > 0 else []
            print(f"\n{told}:", *names[:MOST_NAMED], *more, sep="\n  ")
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


def _json_moved(moved: Moved) -> dict[str, Any]:
    before, after = moved.seen
    return {"row": moved.row, "before": before, "after": after, "changes": list(moved.changes)}


def _json_comparison(comparison: Comparison) -> dict[str, Any]:
    return {
        "schema": 1,
        "headline": comparison.headline,
        "before": comparison.before,
        "after": comparison.after,
        "compared": comparison.compared,
        "moved": [_json_moved(each) for each in comparison.moved],
        "appeared": [_json_moved(each) for each in comparison.appeared],
        "vanished": [_json_moved(each) for each in comparison.vanished],
        "unexplained": list(comparison.unexplained),
        "stayed": list(comparison.stayed),
        "not_compared": dict(comparison.left_out),
    }
