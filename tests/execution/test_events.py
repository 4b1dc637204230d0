"""Reading what jobs stream, against pytest-reportlog itself and against torn files."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.execution.events import EventTail, passed_deadline, read_event
from harness.verdict import CheckOutcome, CheckRecord, without_nan

TESTS = """
import pytest

class TestGroup:
    @pytest.mark.parametrize("x", ["a::b"])
    def test_good(self, x): pass

def test_bad(): assert 1 == 2, "one is not two"

@pytest.mark.skip(reason="no reason")
def test_skipped(): pass

@pytest.mark.xfail(reason="known")
def test_expected(): assert False

@pytest.mark.xfail(strict=True, reason="known")
def test_unexpected(): pass

@pytest.fixture
def broken(): raise OSError("disk")

def test_set_up(broken): pass

@pytest.fixture
def leaving():
    yield
    raise OSError("left open")

def test_torn_down(leaving, record_property):
    record_property("harness_check", {"name": "own", "outcome": "passed"})

def test_speaks(record_property):
    said = {"name": "own red", "outcome": "failed", "message": "m", "figures": {"n": 1}}
    record_property("harness_check", said)
    assert False, "said above"

def test_speaks_wrongly(record_property):
    record_property("harness_check", {"name": "own green", "outcome": "passed"})
    assert False, "later"
"""


def test_real_reports_become_checks(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "test_broken.py").write_text("import no_such_module\n")
    events = tmp_path / "events.jsonl"
    command = [sys.executable, "-m", "pytest", "-p", "pytest_reportlog.plugin", "-p", "no:cacheprovider"]
    command += ["--continue-on-collection-errors", "--rootdir", str(tmp_path), "--report-log", str(events)]
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    subprocess.run(command, cwd=tmp_path, check=False, stdout=subprocess.DEVNULL, env=alone)
    checks = EventTail(events).read()
    assert [(check.name, str(check.outcome)) for check in checks] == [
        ("collect test_broken.py", "error"),
        ("TestGroup::test_good[a::b]", "passed"),
        ("test_bad", "failed"),
        ("test_skipped", "skipped"),
        ("test_expected", "passed"),
        ("test_unexpected", "failed"),
        ("test_set_up", "error"),
        ("own", "passed"),
        ("test_torn_down", "error"),
        ("own red", "failed"),
        ("own green", "passed"),
        ("test_speaks_wrongly", "failed"),
    ]
    messages = {check.name: check.message for check in checks}
    assert "no_such_module" in messages["collect test_broken.py"]
    assert "one is not two" in messages["test_bad"]
    assert "no reason" in messages["test_skipped"]
    assert "disk" in messages["test_set_up"]
    assert messages["own red"] == "m"
    assert next(check.figures for check in checks if check.name == "own red") == {"n": 1}


SUBTESTS = """
import unittest

class TestSub(unittest.TestCase):
    def test_mixed(self):
        for size in (1, 2, 3):
            with self.subTest(size=size, kind="a::b"):
                self.assertNotEqual(size, 2, "two is wrong")

    def test_told(self):
        with self.subTest("only words"):
            pass

    def test_skips(self):
        with self.subTest(n=0):
            self.skipTest("not here")

def test_fixture(subtests):
    with subtests.test(long="x" * 1000):
        pass
"""


def test_subtests_become_checks_that_carry_their_parameters(tmp_path: Path) -> None:
    (tmp_path / "test_sub.py").write_text(SUBTESTS)
    events = tmp_path / "events.jsonl"
    command = [sys.executable, "-m", "pytest", "-p", "pytest_reportlog.plugin", "-p", "no:cacheprovider"]
    command += ["--rootdir", str(tmp_path), "--report-log", str(events)]
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    subprocess.run(command, cwd=tmp_path, check=False, stdout=subprocess.DEVNULL, env=alone)
    checks = EventTail(events).read()
    told = {check.name: check for check in checks if check.is_subtest}
    long = next(name for name in told if name.startswith("test_fixture ("))
    assert {name: str(check.outcome) for name, check in told.items() if name != long} == {
        "TestSub::test_mixed (size=1, kind='a::b')": "passed",
        "TestSub::test_mixed (size=2, kind='a::b')": "failed",
        "TestSub::test_mixed (size=3, kind='a::b')": "passed",
        "TestSub::test_told (only words)": "passed",
        "TestSub::test_skips (n=0)": "skipped",
    }
    failed = told["TestSub::test_mixed (size=2, kind='a::b')"]
    assert "two is wrong" in failed.message
    assert failed.figures == {"subtest": {"size": "2", "kind": "'a::b'"}}
    assert len(long) < 200
    assert "test_fixture" in {check.name for check in checks if not check.is_subtest}


def test_a_test_that_speaks_without_a_name_is_called_like_the_test() -> None:
    event = json.loads(report("test_x", outcome="passed"))
    del event["user_properties"][0][1]["name"]
    (check,) = read_event(json.dumps(event).encode())
    assert check.name == "test_x"


def report(name: str, **said: object) -> str:
    event = {
        "$report_type": "TestReport",
        "nodeid": f"suites/x.yaml::job[a::b]::{name}",
        "when": "call",
        "outcome": "passed",
        "user_properties": [["harness_check", {"name": name, "outcome": "passed", **said}]] if said else [],
    }
    return json.dumps(event, ensure_ascii=False) + "\n"


@given(names=st.lists(st.text(min_size=1, max_size=8), max_size=6), cuts=st.lists(st.integers(0, 3000)))
@settings(max_examples=40, deadline=None)
def test_wherever_a_file_is_torn_each_line_is_read_once(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], cuts: list[int]
) -> None:
    written = "".join(report(name, message=name) for name in names).encode() + b'{"half": '
    path = tmp_path_factory.mktemp("events") / "events.jsonl"
    tail = EventTail(path)
    seen = [check.name for check in tail.read()]
    edges = [0, *sorted(min(cut, len(written)) for cut in cuts), len(written)]
    for begin, end in pairwise(edges):
        with path.open("ab") as file:
            file.write(written[begin:end])
        seen += [check.name for check in tail.read()]
    assert seen == names


def test_an_item_of_a_suite_is_named_by_its_check() -> None:
    assert [check.name for check in read_event(report("parity").encode())] == ["parity"]


@pytest.mark.parametrize(
    "line",
    [
        *(b"garbage", b"[1]", b'{"$report_type": "TestReport"}', b"\xff", b"null", b"", b"\x00"),
        *(b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000),
    ],
    ids=lambda line: repr(line[:12]),
)
def test_a_line_that_cannot_be_read_is_an_error_and_never_unseen(line: bytes) -> None:
    (check,) = read_event(line)
    assert (check.name, check.outcome) == ("events", CheckOutcome.ERROR)
    assert "cannot be read" in check.message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
WHERE = [
    *(
        ("$report_type",),
        ("nodeid",),
        ("when",),
        ("outcome",),
        ("duration",),
        ("longrepr",),
        ("user_properties",),
    ),
    *(("user_properties", 0), ("user_properties", 0, 0), ("user_properties", 0, 1)),
    *(("user_properties", 0, 1, key) for key in ("name", "outcome", "message", "figures", "seconds")),
]


@given(kind=st.sampled_from(["TestReport", "CollectReport"]), where=st.sampled_from(WHERE), value=JSON)
@example(kind="TestReport", where=("longrepr",), value=[])
@example(kind="TestReport", where=("duration",), value=float("nan"))
@example(kind="TestReport", where=("user_properties", 0, 1, "seconds"), value=float("inf"))
@example(kind="TestReport", where=("user_properties", 0, 1, "name"), value=7)
@example(kind="TestReport", where=("user_properties", 0, 1, "message"), value={"a": 1})
@example(kind="TestReport", where=("user_properties", 0, 1, "figures"), value={"a": "\udcff"})
@settings(max_examples=150, deadline=None)
def test_whatever_a_field_holds_the_checks_can_be_stored_and_shown(
    kind: str, where: tuple[str | int, ...], value: object
) -> None:
    event = json.loads(report("parity", message="m", figures={}, seconds=1.0))
    event |= {"$report_type": kind, "outcome": "failed", "longrepr": "text", "duration": 1.0}
    *path, last = where
    inner = event
    for step in path:
        inner = inner[step]
    inner[last] = value
    for check in read_event(json.dumps(event).encode()):
        assert check.outcome in CheckOutcome
        assert math.isfinite(check.seconds)
        for text in (check.name, check.message, json.dumps(without_nan(check.figures), ensure_ascii=False)):
            text.encode()


def test_a_file_that_skips_itself_is_seen(tmp_path: Path) -> None:
    """pytest reports it as collected, and ends with 0 if other files have tests."""
    (tmp_path / "test_a.py").write_text(
        "import pytest\npytest.importorskip('no_such_module')\ndef test_a(): pass"
    )
    (tmp_path / "test_b.py").write_text("def test_b(): pass")
    for workers in ([], ["-n", "1"]):
        events = tmp_path / f"events{len(workers)}.jsonl"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--report-log={events}"]
        assert subprocess.run([*command, *workers, str(tmp_path)], stdout=subprocess.DEVNULL).returncode == 0
        assert {check.name: check.outcome for check in EventTail(events).read()} == {
            "collect test_a.py": CheckOutcome.SKIPPED,
            "test_b": CheckOutcome.PASSED,
        }


def test_an_unknown_outcome_of_a_check_is_an_error() -> None:
    (check,) = read_event(report("parity", message="", outcome="splendid").encode())
    assert (check.name, check.outcome) == ("events", CheckOutcome.ERROR)


def test_sessions_and_warnings_say_nothing() -> None:
    assert read_event(b'{"$report_type": "SessionFinish", "exitstatus": 0}') == []
    assert read_event(b'{"pytest_version": "8"}') == []


def test_the_first_deadline_that_an_errored_check_names_counts() -> None:
    def record(outcome: CheckOutcome, **figures: str) -> CheckRecord:
        return CheckRecord(name="a", outcome=outcome, figures=dict(figures))

    checks = [
        record(CheckOutcome.PASSED, deadline="of no interest"),
        record(CheckOutcome.ERROR),
        record(CheckOutcome.ERROR, deadline="launch"),
        record(CheckOutcome.ERROR, deadline="check rows"),
    ]
    assert passed_deadline(checks) == "launch"
    assert passed_deadline(checks[:2]) is None
