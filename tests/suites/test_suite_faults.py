"""`faults:`, what the tests of a suite can plant, beside `tests:` and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator
from suite_helpers import GOOD, REPOSITORY, load, only_error, text_at

from harness.faults import FAULTS, Reach, get_fault
from harness.suites import ProfileName, expand, json_schema, load_suite
from harness.suites.fault_ids import OF_CODE, OF_PAIRS

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


def test_ids_are_those_of_the_catalogue() -> None:
    assert tuple(OF_CODE) == tuple(id for id, fault in FAULTS.items() if fault.reach is not Reach.PAIR)
    assert tuple(OF_PAIRS) == tuple(id for id, fault in FAULTS.items() if fault.reach is Reach.PAIR)


@pytest.mark.parametrize(
    ("faults", "says", "at"),
    [
        ("[stride, emptysplit]", "'emptysplit' is unknown; did you mean 'empty-split'?", "emptysplit"),
        ("[zzz]", "'zzz' is unknown (allowed: lse-base, ", "zzz"),
        ("[stride, 7]", "7 is not allowed here; allowed: text", "7"),
        ("[stride, lse-base, stride]", "names 'stride' twice; allowed: each once", "[stride"),
        *((f"[{fault}]", f"'{fault}' breaks what a prefill engine hands to a", fault) for fault in OF_PAIRS),
    ],
)
def test_what_no_test_can_plant_is_refused_where_it_is_written(
    tmp_path: Path, faults: str, says: str, at: str
) -> None:
    (tmp_path / "test_x.py").write_text("def test_x(): pass\n")
    error = only_error(tmp_path, TESTS + f"faults: {faults}\n")
    assert says in error.message
    assert text_at(error).startswith(at)
    assert not valid(TESTS + f"faults: {faults}\n")


def test_an_editor_knows_the_ids() -> None:
    assert valid(TESTS + "faults: [stride, lse-base]\n")
    assert valid(TESTS + "matrix: {f: [stride]}\nfaults: ['${f}']\n")


def valid(text: str) -> bool:
    return bool(Draft202012Validator(json_schema()).is_valid(yaml.safe_load(text)))
