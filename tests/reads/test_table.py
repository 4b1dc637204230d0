"""The expectation as people write it: every mistake has its place, and no row or consumer is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from reads_helpers import fake_consumer

from harness.errors import HarnessError, UsageError
from harness.reads.registry import Kind, Role, load_consumers
from harness.reads.table import Expected, Table, load_table

SHIPPED = Path(__file__).resolve().parents[2] / "suites" / "sglang" / "_dcp_reads.yaml"

CONSUMERS = {
    "pool.size": fake_consumer("pool.size"),
    "pool.name": fake_consumer("pool.name", Kind.FACT, (Role.TARGET,)),
}
GOOD = """\
versions: {0.5.17: live, 0.5.18: live, 0.5.23: published}
rows:
  pool.size:
    what: how large it is
    change: {draft: [33925, 34133]}
    known_open: {draft: too large}
    target: {0.5.17: seed, 0.5.18: seed, 0.5.23: constant 1}
    draft: {0.5.17: seed, 0.5.18: ps, 0.5.23: {absent: it is gone}}
  pool.name:
    what: what it is called
    change: 7
    target: {0.5.17: a pool, 0.5.18: a pool, 0.5.23: a pool}
"""


def load(text: str, folder: Path) -> Table:
    file = folder / "table.yaml"
    file.write_text(text)
    return load_table(file, CONSUMERS)


def test_a_table_says_what_each_row_reads(tmp_path: Path) -> None:
    table = load(GOOD, tmp_path)
    size, name = table.rows["pool.size"], table.rows["pool.name"]
    assert size.expected[Role.TARGET]["0.5.23"] == Expected("constant 1")
    assert size.expected[Role.DRAFT]["0.5.23"] == Expected("absent", "it is gone")
    assert size.changes == {Role.TARGET: (), Role.DRAFT: (33925, 34133)}
    assert size.known_open == {Role.DRAFT: "too large"}
    assert name.expected == {Role.TARGET: dict.fromkeys(["0.5.17", "0.5.18", "0.5.23"], Expected("a pool"))}
    assert name.changes == {Role.TARGET: (7,)}
    assert table.moved("0.5.17", "0.5.18") == [("pool.size", Role.DRAFT)]
    assert table.moved("0.5.18", "0.5.23") == [("pool.size", Role.TARGET), ("pool.size", Role.DRAFT)]


def test_both_stands_for_each_role(tmp_path: Path) -> None:
    cells = "{0.5.17: seed, 0.5.18: live, 0.5.23: live}"
    lines = [
        line for line in GOOD.splitlines() if not line.startswith(("    target: {0.5.17: seed", "    draft"))
    ]
    text = "\n".join(lines).replace("    known_open", f"    both: {cells}\n    known_open")
    row = load(text, tmp_path).rows["pool.size"]
    assert row.expected[Role.TARGET] == row.expected[Role.DRAFT]
    assert row.expected[Role.DRAFT]["0.5.18"] == Expected("live")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("constant 1", "^konstant 1", "is no source"),
        (
            "0.5.18: ps",
            "0.5.18: ^pss",
            "'pss' is no source; allowed: seed, ps, live, copy, SOURCE gated by SOURCE, none",
        ),
        ("{0.5.17: seed, 0.5.18: ps, ", "^{0.5.17: seed, ", "says nothing of 0.5.18"),
        ("0.5.18: ps", "^0.5.19: ps", "there are 0.5.17, 0.5.18, 0.5.23"),
        ("{absent: it is gone}", "^{gone: yes}", "allowed: seed"),
        ("0.5.23: published", "0.5.23: ^newest", "allowed: live, published"),
        ("  pool.name:", "  ^pool.nmae:", "no such consumer is registered"),
        ("    draft: {", "    ^both: {", "one way to say it"),
        ("    what: how large it is\n    change", "    ^change", "allowed: what: TEXT"),
        ("change: 7", "change: ^seven", "the number of a change"),
        ("[33925, 34133]", "^[33925, next]", "the number of a change"),
        ("change: {draft:", "change: {^drfat:", "allowed: target, draft"),
        ("known_open: {draft: too large}", "known_open: ^yes", "is no mapping"),
        ("known_open: {draft: too large}", "known_open: {draft: ^7}", "as text"),
        ("    change: 7", "    ^chnage: 7", "unknown key 'chnage'"),
        ("    change: 7", "    ^draft: {}", "is not driven as draft"),
        ("rows:", "^row:", "unknown key 'row'"),
    ],
)
def test_each_mistake_is_told_at_its_place(old: str, new: str, told: str, tmp_path: Path) -> None:
    """`^` in `new` is the place."""
    assert GOOD.count(old) == 1
    text = GOOD.replace(old, new)
    before = text[: text.index("^")]
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    with pytest.raises(HarnessError) as caught:
        load(text.replace("^", ""), tmp_path)
    found = [line for line in str(caught.value).splitlines() if told in line]
    place = f"{tmp_path / 'table.yaml'}:{line}:{column}: "
    assert [each for each in found if each.startswith(place)], (place, str(caught.value))


def test_all_mistakes_are_told_together(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load(GOOD.replace("constant 1", "constant").replace("0.5.18: ps", "0.5.18: sp"), tmp_path)
    assert len(str(caught.value).splitlines()) == 2


def test_a_consumer_without_a_row_is_named(tmp_path: Path) -> None:
    text = GOOD[: GOOD.index("  pool.name")]
    with pytest.raises(UsageError, match=r"no row for pool\.name"):
        load(text, tmp_path)


@pytest.mark.parametrize("text", ["- a list\n", "a word\n"])
def test_what_is_no_mapping_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="not a table"):
        load(text, tmp_path)


@pytest.mark.parametrize(
    ("version", "generation", "column"),
    [
        ("0.5.17", "live", "0.5.17"),
        ("0.5.16", "live", "0.5.17"),
        ("0.5.17.post1", "live", "0.5.17"),
        ("0.5.18.dev3+g1234", "live", "0.5.18"),
        ("0.5.20", "live", "0.5.18"),
        ("0.5.21", "published", "0.5.23"),
        ("0.5.30", "published", "0.5.23"),
        ("0.0.0.dev0", "live", "0.5.18"),
        ("unknown", "live", "0.5.18"),
        ("0.0.0", "published", "0.5.23"),
    ],
)
def test_a_version_between_two_columns_is_held_against_the_older_of_its_generation(
    version: str, generation: str, column: str, tmp_path: Path
) -> None:
    assert load(GOOD, tmp_path).column(version, generation) == column


def test_a_generation_without_a_column_is_refused(tmp_path: Path) -> None:
    table = load(GOOD.replace("0.5.23: published}\nrows", "0.5.23: live}\nrows"), tmp_path)
    with pytest.raises(UsageError, match="no column is of the generation 'published'"):
        table.column("0.5.24", "published")


def test_the_shipped_table_has_a_row_for_every_consumer_and_no_other() -> None:
    table = load_table(SHIPPED, load_consumers())
    assert set(table.rows) == set(load_consumers())
    assert list(table.versions) == ["0.5.17", "0.5.18", "0.5.23"]


def test_between_0_5_17_and_0_5_18_exactly_the_rows_of_the_two_changes_move() -> None:
    table = load_table(SHIPPED, load_consumers())
    of_a_change = [
        (name, role) for name, row in table.rows.items() for role in row.expected if row.changes[role]
    ]
    assert table.moved("0.5.17", "0.5.18") == of_a_change
    named = {number for row in table.rows.values() for numbers in row.changes.values() for number in numbers}
    assert named == {33925, 34133}
