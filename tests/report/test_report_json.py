"""JSON reports: the contract as strict JSON, written whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from report_runs import make_attempt, make_job, make_run

from harness.report import ReportError, render_json, write_json
from harness.verdict import CheckOutcome, CheckRecord, to_json


def test_it_is_the_contract(full_run):
    assert json.loads(render_json(full_run)) == to_json(full_run)


def test_no_nan_leaves():
    check = CheckRecord(name="a", outcome=CheckOutcome.PASSED, figures={"gap": float("nan")})
    text = render_json(
        make_run(make_job("a", "passed", make_attempt(1, "passed", check), seconds=float("inf")))
    )
    found = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert found["jobs"][0]["checks"][0]["figures"] == {"gap": None}
    assert found["jobs"][0]["seconds"] is None


def test_a_lone_surrogate_does_not_stop_the_report(tmp_path):
    job = make_job("a", "passed", reason="\ud800")
    write_json(make_run(job), tmp_path / "run.json")
    assert "\\ud800" in (tmp_path / "run.json").read_text(encoding="utf-8")


def test_an_old_report_is_replaced_whole(tmp_path, full_run):
    path = tmp_path / "run.json"
    path.write_text("old" * 100_000)
    write_json(full_run, path)
    assert path.read_text(encoding="utf-8") == render_json(full_run)


def test_a_pipe_is_written_to_and_not_replaced(full_run):
    read, write = os.pipe()
    try:
        write_json(make_run(), Path(f"/dev/fd/{write}"))
        assert json.loads(os.read(read, 65536)) == to_json(make_run())
    finally:
        os.close(read)
        os.close(write)


def test_a_place_that_cannot_be_written_is_one_clear_error(tmp_path, full_run):
    (tmp_path / "file").touch()
    with pytest.raises(ReportError, match="cannot write the report"):
        write_json(full_run, tmp_path / "file" / "run.json")
