"""`harness reads table` and `harness reads compare`, on the shipped table and on a ledger that two runs left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import assert_usage_error, harness

from harness.ledger import Ledger
from harness.verdict import CheckOutcome, CheckRecord

DRIVES = [{"seed": 8, "ps": 4, "live": 2, "copy": 16}, {"seed": 4, "ps": 2, "live": 8, "copy": 12}]


def row(name: str, source: str, version: str, changes: list[int]) -> CheckRecord:
    figures: dict[str, Any] = {
        "consumer": name,
        "role": "target",
        "kind": "scale",
        "source": source,
        "expected": source,
        "numbers": [{**drive, "used": drive[source]} for drive in DRIVES],
        "where": "srt/pool.py:7",
        "absent": "",
        "changes": changes,
        "known_open": "",
        "version": version,
    }
    return CheckRecord(name=f"{name}[target]", outcome=CheckOutcome.PASSED, figures=figures)


def add_run(ledger: Ledger, *checks: CheckRecord, engine: str | None = None) -> str:
    run = ledger.start_run(harness_sha="abc")
    ledger.add_job(run, "sglang/dcp_reads@cpu", suite="sglang/dcp_reads", profile="cpu", engine_sha=engine)
    ledger.start_attempt(run, "sglang/dcp_reads@cpu", n=1)
    ledger.add_checks(run, "sglang/dcp_reads@cpu", n=1, checks=checks)
    return run


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, str, str]:
    """A run of each release: one row moved, as a change says, and one stayed."""
    with Ledger.open(tmp_path) as ledger:
        older = [row("moved", "seed", "0.5.17", [34133]), row("stayed", "live", "0.5.17", [])]
        newer = [row("moved", "ps", "0.5.18", [34133]), row("stayed", "live", "0.5.18", [])]
        return tmp_path, add_run(ledger, *older), add_run(ledger, *newer)


def test_rows_that_moved_are_told_with_number_and_place(runs: tuple[Path, str, str]) -> None:
    reports, older, newer = runs
    done = harness("reads", "compare", older, newer, reports=reports)
    assert done.code == 0, done.told
    head, _, columns, moved = done.out.splitlines()
    assert head == "1 of 2 rows changed their source from 0.5.17 to 0.5.18: exactly the rows of #34133"
    assert columns.split() == ["row", "0.5.17", "0.5.18", "change"]
    assert moved.split() == ["moved[target]", "seed:", "8", "ps:", "4", "#34133"]


def test_sources_of_one_version_are_told_apart_by_what_they_are(tmp_path: Path) -> None:
    with Ledger.open(tmp_path) as ledger:
        older = add_run(ledger, row("moved", "seed", "0.5.18", []), engine="sglang 0.5.18 source aaa")
        newer = add_run(ledger, row("moved", "ps", "0.5.18", []), engine="sglang 0.5.18 source bbb")
    head, _, columns, *_ = harness("reads", "compare", older, newer, reports=tmp_path).out.splitlines()
    assert (
        head == "1 of 1 rows changed their source from sglang 0.5.18 source aaa to sglang 0.5.18 source bbb"
    )
    assert "sglang 0.5.18 source aaa  sglang 0.5.18 source bbb" in columns


def test_json_says_the_same(runs: tuple[Path, str, str]) -> None:
    reports, older, newer = runs
    answer = json.loads(harness("reads", "compare", older, newer, "--json", reports=reports).out)
    assert (answer["schema"], answer["compared"]) == (1, 2)
    assert [each["row"] for each in answer["moved"]] == ["moved[target]"]
    assert answer["moved"][0]["after"] == "ps: 4 of seed 8, ps 4, live 2, copy 16 (srt/pool.py:7)"
    assert answer["appeared"] == answer["vanished"] == []
    assert answer["unexplained"] == answer["stayed"] == []


def test_the_same_run_moved_nothing(runs: tuple[Path, str, str]) -> None:
    reports, older, _ = runs
    done = harness("reads", "compare", older, older, reports=reports)
    assert done.out.splitlines() == [
        "0 of 2 rows changed their source from 0.5.17 to 0.5.17",
        "",
        "belong to a change and did not move:",
        "  moved[target]",
    ]


def test_a_long_list_is_cut_and_json_has_it_whole(tmp_path: Path) -> None:
    rows = [row(f"row{number:02}", "live", "0.5.18", [7]) for number in range(12)]
    with Ledger.open(tmp_path) as ledger:
        run = add_run(ledger, *rows)
    lines = harness("reads", "compare", run, run, reports=tmp_path).out.splitlines()
    assert lines[2:] == [
        "belong to a change and did not move:",
        *(f"  row{number:02}[target]" for number in range(8)),
        "  … 4 more, in --json",
    ]
    answer = json.loads(harness("reads", "compare", run, run, "--json", reports=tmp_path).out)
    assert len(answer["stayed"]) == 12


def test_the_help_has_an_example() -> None:
    assert "Example: harness reads table" in harness("reads", "--help").told


def test_a_row_that_one_run_could_not_judge_is_told(runs: tuple[Path, str, str]) -> None:
    reports, older, _ = runs
    broken = CheckRecord(name="moved[target]", outcome=CheckOutcome.ERROR, message="TypeError: 7")
    with Ledger.open(reports) as ledger:
        newer = add_run(ledger, row("stayed", "live", "0.5.18", []), broken)
    done = harness("reads", "compare", older, newer, reports=reports)
    assert "not compared: moved[target]: an error in the second run" in done.out


def test_a_run_that_drove_no_consumers_is_refused(runs: tuple[Path, str, str]) -> None:
    reports, older, _ = runs
    with Ledger.open(reports) as ledger:
        other = ledger.start_run(harness_sha="abc")
    assert_usage_error(harness("reads", "compare", older, other, reports=reports), "drove no consumers")


def test_the_table_has_a_line_for_each_consumer_and_role() -> None:
    done = harness("reads", "table", "tp_worker.*")
    assert done.code == 0, done.told
    columns, *lines = done.out.splitlines()
    assert columns.split()[:5] == ["consumer", "role", "0.5.17", "0.5.18", "0.5.23"]
    assert [line.split()[:5] for line in lines][:2] == [
        ["tp_worker.kv_pool", "target", "seed", "ps", "live"],
        ["tp_worker.kv_pool", "draft", "seed", "ps", "constant"],
    ]


def test_a_row_that_upstream_left_open_is_marked_with_the_reason() -> None:
    lines = harness("reads", "table", "triton_backend.dcp_size").out.splitlines()
    assert [line.split()[1] for line in lines[1:]] == ["target", "draft*"]
    assert "known open: a draft keeps its whole KV" in lines[2]


def test_the_table_as_json_has_every_cell_whole() -> None:
    rows = json.loads(harness("reads", "table", "--json").out)["rows"]
    fields = next(row for row in rows if row["consumer"] == "parallel_state.fields")
    assert fields["expected"]["target"]["0.5.17"]["source"] == "dcp_size; trivial dcp_size=1"


def test_a_pattern_without_a_consumer_is_refused() -> None:
    assert_usage_error(harness("reads", "table", "nothing.*"), "no consumer is called 'nothing.*'")
