"""What every command prints alike: JSON for scripts, tables for people. Data on stdout, talk on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any


def print_json(value: Any) -> None:
    """One JSON document on stdout; NaN is refused, since JSON has no word for it.

    Written whole, so that an error half-way leaves nothing; with escapes where stdout is not UTF-8.
    """
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    print(json.dumps(value, indent=2, allow_nan=False, ensure_ascii=not unicode))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table: wrapped to the width of a terminal; in a pipe or file one line a row, so that grep finds it."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        print("\n".join(_lines(columns, rows)))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=number == 0)  # names stay whole, to be copied
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def _lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    table = [columns, *([cell.replace("\n", " ") for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
