"""Places of reports: tried before a run, written whole after it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from report_runs import make_job, make_run

from harness.errors import UsageError
from harness.report import ReportError, check_writable, write_json, write_junit


@pytest.mark.parametrize("place", ["nothing/there/x.json", "file/x.json", ".", "/dev/null/x.json"])
def test_a_place_that_cannot_be_written_is_told_before(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        check_writable(tmp_path / place)


def test_a_place_that_can_be_written_is_left_as_it_was(tmp_path: Path) -> None:
    old = tmp_path / "old.json"
    old.write_text("old")
    for place in (old, tmp_path / "new.json", Path(os.devnull)):
        check_writable(place)
    assert [path.name for path in tmp_path.iterdir()] == ["old.json"]
    assert old.read_text() == "old"


@pytest.mark.parametrize("write", [write_json, write_junit])
def test_what_cannot_be_written_after_all_is_no_verdict_on_the_code(write, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ReportError, match="cannot write the report") as caught:
        write(make_run(make_job("a", "passed")), tmp_path / "folder")
    assert caught.value.exit_code == 3
