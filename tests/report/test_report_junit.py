"""JUnit: the structure that junit-10.xsd demands, and that nothing red renders green."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_runs import ACTIVE, PARITY, make_attempt, make_job, make_run

from harness.report import render_junit, write_junit
from harness.verdict import CheckOutcome, CheckRecord, Verdict

# The schema as rules: element → (allowed attributes, required ones, allowed children).
RERUN = ({"message", "type"}, {"type"}, {"stackTrace", "system-out", "system-err"})
RESULT = ({"message", "type"}, set(), set())
SCHEMA = {
    "testsuites": ({"name", "time", "tests", "failures", "errors"}, set(), {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors", "skipped", "time", "timestamp", "hostname", "id"},
        {"name", "tests", "failures", "errors"},
        {"properties", "testcase", "system-out", "system-err"},
    ),
    "properties": (set(), set(), {"property"}),
    "property": ({"name", "value"}, {"name", "value"}, set()),
    "testcase": (
        {"name", "time", "classname", "group"},
        {"name"},
        {
            "skipped",
            "error",
            "failure",
            "rerunFailure",
            "rerunError",
            "flakyFailure",
            "flakyError",
            "system-out",
        },
    ),
    "failure": RESULT,
    "error": RESULT,
    "skipped": RESULT,
    "rerunFailure": RERUN,
    "rerunError": RERUN,
    "flakyFailure": RERUN,
    "flakyError": RERUN,
    "stackTrace": (set(), set(), set()),
    "system-out": (set(), set(), set()),
}


def assert_valid(element: ET.Element) -> None:
    allowed, required, children = SCHEMA[element.tag]
    assert required <= set(element.attrib) <= allowed
    if "time" in element.attrib:
        assert re.fullmatch(r"[0-9]+\.[0-9]{3}", element.attrib["time"])
    for child in element:
        assert child.tag in children
        assert_valid(child)


def assert_counts(suite: ET.Element) -> None:
    cases = suite.findall("testcase")
    assert int(suite.attrib["tests"]) == len(cases)
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        if attribute in suite.attrib:
            assert int(suite.attrib[attribute]) == len(suite.findall(f"testcase/{tag}"))
    assert len({case.attrib["name"] for case in cases}) == len(cases)


def parse(run) -> dict[str, ET.Element]:
    root = ET.fromstring(render_junit(run).encode())
    assert_valid(root)
    for suite in root:
        assert_counts(suite)
    for attribute in ("tests", "failures", "errors"):
        assert int(root.attrib[attribute]) == sum(int(suite.attrib[attribute]) for suite in root)
    return {suite.attrib["name"]: suite for suite in root}


def tags(suite: ET.Element) -> dict[str, list[str]]:
    """Case name → its result elements."""
    return {
        case.attrib["name"]: [child.tag for child in case if child.tag != "system-out"]
        for case in suite.findall("testcase")
    }


def test_every_verdict_is_told(full_run):
    suites = parse(full_run)
    assert {name: tags(suite) for name, suite in suites.items()} == {
        "dcp/red@cpu": {"active": [], "parity": ["failure"]},
        "dcp/green@cpu": {"active": []},
        "dcp/no_pool@gpu": {"job": ["skipped"]},
        "dcp/slow@cpu": {"active": [], "job": ["error"]},
        "dcp/killed@cpu": {"active": [], "job": ["error"]},
        "dcp/flaky@cpu": {"active": [], "parity": ["flakyFailure"], "job": ["failure"]},
        "dcp/machine@cpu": {"job": ["error", "rerunError", "rerunError"]},
        "dcp/recovered@cpu": {"active": [], "job": ["flakyError"]},
        "dcp/open@cpu": {"active": ["error"]},
        "dcp/declared@cpu": {"job": ["skipped"]},
    }
    reason = suites["dcp/no_pool@gpu"].find("testcase/skipped")
    assert reason.attrib["message"] == "needs 4×b200, and no pool has a b200"


def test_a_failure_has_its_first_line_as_message_and_all_of_it_as_text(full_run):
    failure = parse(full_run)["dcp/red@cpu"].find("testcase/failure")
    assert failure.attrib == {"type": "failed", "message": PARITY.message.partition("\n")[0]}
    assert failure.text == PARITY.message


def test_attempts_are_kept_with_a_stack_trace(full_run):
    flaky = parse(full_run)["dcp/flaky@cpu"].find("testcase/flakyFailure")
    assert flaky.find("stackTrace").text == PARITY.message


def test_a_case_that_stays_red_reruns_and_one_that_was_not_reached_again_is_not_green():
    job = make_job(
        "repeat",
        "failed",
        make_attempt(
            1, "failed", PARITY, CheckRecord(name="rows", outcome=CheckOutcome.ERROR, message="gone")
        ),
        make_attempt(2, "failed", PARITY, reason="parity failed"),
        reason="attempt 1: parity failed",
    )
    assert tags(parse(make_run(job))["dcp/repeat@cpu"]) == {
        "parity": ["failure", "rerunFailure"],
        "rows": ["skipped", "flakyError"],
    }


def test_a_check_that_comes_twice_is_two_cases():
    job = make_job(
        "twice", "failed", make_attempt(1, "failed", ACTIVE, PARITY, PARITY), reason="parity failed"
    )
    assert list(tags(parse(make_run(job))["dcp/twice@cpu"])) == ["active", "parity", "parity#2"]


def test_properties_tell_what_ran(full_run):
    found = {p.attrib["name"]: p.attrib["value"] for p in parse(full_run)["dcp/red@cpu"].iter("property")}
    assert found["engine_sha"] == "e1"
    assert found["harness_sha"] == "abc"
    assert found["matrix.dcp"] == "4"
    assert found["node"] == "host"


def test_control_characters_are_shown_and_markup_is_text():
    evil = CheckRecord(name="a\x00b", outcome=CheckOutcome.FAILED, message='\x1b[31m<b a="1">&\ud800]]>')
    suite = parse(make_run(make_job("evil", "failed", make_attempt(1, "failed", evil), reason="x")))[
        "dcp/evil@cpu"
    ]
    assert suite.find("testcase").attrib["name"] == "a#x00b"
    assert suite.find("testcase/failure").text == '#x1B[31m<b a="1">&#xD800]]>'


def test_a_running_job_is_a_case_without_a_result():
    assert tags(parse(make_run(make_job("busy", None, make_attempt(1, None))))["dcp/busy@cpu"]) == {"job": []}


@pytest.mark.parametrize("seconds", [0.0004, 123456.7891, float("nan"), float("inf")])
def test_times_have_three_decimals_whatever_comes(seconds):
    check = CheckRecord(name="a", outcome=CheckOutcome.PASSED, seconds=seconds)
    parse(make_run(make_job("t", "passed", make_attempt(1, "passed", check), seconds=seconds)))


CHECKS = st.lists(
    st.builds(
        CheckRecord,
        name=st.sampled_from(["a", "b"]),
        outcome=st.sampled_from(list(CheckOutcome)),
        message=st.text(max_size=8),
    ),
    max_size=3,
)
ATTEMPTS = st.lists(
    st.tuples(st.sampled_from(["passed", "failed", "timeout", "infra", "inconclusive"]), CHECKS), max_size=3
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(list(Verdict)), ATTEMPTS)
def test_any_job_is_valid_and_one_that_counts_against_the_run_is_never_green(verdict, told):
    attempts = [make_attempt(n, outcome, *checks) for n, (outcome, checks) in enumerate(told, start=1)]
    suite = parse(make_run(make_job("any", verdict.value, *attempts, reason="why")))["dcp/any@cpu"]
    if verdict not in (Verdict.PASSED, Verdict.SKIPPED, Verdict.NOT_RUN):
        assert int(suite.attrib["failures"]) + int(suite.attrib["errors"]) > 0


def test_the_file_is_what_was_rendered(full_run, tmp_path):
    write_junit(full_run, tmp_path / "new" / "junit.xml")
    assert (tmp_path / "new" / "junit.xml").read_text(encoding="utf-8") == render_junit(full_run)
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["junit.xml"]
