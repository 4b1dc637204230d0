"""`faults:`, what the tests of a suite can plant, beside `tests:` and nowhere else."""

from __future__ import annotations

from pathlib import Path

from suite_helpers import GOOD, REPOSITORY, load, only_error, text_at

from harness.faults import get_fault
from harness.suites import ProfileName, expand, load_suite

TESTS = """\
summary: plain tests
profiles: {cpu: {needs: {cpu: 1}, estimate: 1s, timeout: 1m}}
tests: [test_x.py]
"""


def test_a_job_has_those_that_its_suite_declares(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text("def test_x(): pass\n")
    for text, faults in {TESTS: (), TESTS + "faults: [stride, lse-base]\n": ("stride", "lse-base")}.items():
        (job,) = expand(load(tmp_path, text), ProfileName.CPU)
        assert job.faults == faults


def test_engines_take_every_fault_so_nothing_is_declared_beside_checks(tmp_path: Path) -> None:
    error = only_error(tmp_path, GOOD + "faults: [stride]\n")
    assert "stands in a suite without tests" in error.message
    assert text_at(error).startswith("faults:")


def test_shipped_suites_declare_faults_that_there_are() -> None:
    root = REPOSITORY / "suites"
    declared = {
        fault
        for path in root.rglob("[!_]*.yaml")
        for job in expand(load_suite(path, root=root), ProfileName.CPU)
        for fault in job.faults
    }
    assert {"empty-split", "stride", "lse-unscaled"} <= declared
    assert {get_fault(fault).id for fault in declared} == declared
