"""One row of the table against the installed package: what is told of it, and what is kept for later runs.

Called by the suite `sglang/dcp_reads`, once for each consumer and role, inside an SGLang environment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.reads.drive import Observation, observe
from harness.reads.registry import Consumer, Role
from harness.reads.table import Expected, Row, Table
from harness.reads.words import Figures, in_words
from harness.topology.targets.sglang import detect


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """`passed`, a sentence for people, and the figures that `harness reads` compares between runs."""

    passed: bool
    message: str
    figures: dict[str, Any]


def check_name(consumer: str, role: Role) -> str:
    return f"{consumer}[{role.value}]"


def judge(table: Table, consumer: Consumer, role: Role) -> Judged:
    """Drive the consumer and hold it against the row. Raises whatever the package raises: that is no finding."""
    package = detect()
    row = table.rows[consumer.name]
    column = table.column(package.version, package.generation.value)
    expected = row.expected[role][column]
    seen = observe(consumer, role)
    figures = {**_figures(seen, expected, row, role), "version": package.version, "column": column}
    return Judged(passed=seen.source == expected.source, message=_message(figures, column), figures=figures)


def _message(figures: Figures, column: str) -> str:
    told = in_words(figures)
    if figures["source"] != figures["expected"]:
        place = figures["where"] or "no place"
        return f"{told}, but the table says {figures['expected']} for {column}; driven: {place}"
    is_open = figures["known_open"] and not figures["absent"]
    open_note = f"; known open: {figures['known_open']}" if is_open else ""
    return f"{told}, as the table says for {column}{open_note}"


def _figures(seen: Observation, expected: Expected, row: Row, role: Role) -> dict[str, Any]:
    return {
        "consumer": row.consumer,
        "role": role.value,
        "kind": seen.consumer.kind.value,
        "source": seen.source,
        "expected": expected.source,
        "numbers": seen.numbers,
        "where": seen.where,
        "absent": seen.absent,
        "changes": list(row.changes[role]),
        "known_open": row.known_open.get(role, ""),
    }
