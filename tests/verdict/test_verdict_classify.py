"""`classify_attempt`: design section 3, row by row, and the rule that nothing unexplained is green."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.verdict import (
    AttemptOutcome,
    CheckOutcome,
    CheckRecord,
    ProcessEnd,
    classify_attempt,
    signal_name,
)

OK = ProcessEnd(exit_code=0)


def check(name: str, outcome: str = "passed", message: str = "") -> CheckRecord:
    return CheckRecord(name=name, outcome=CheckOutcome(outcome), message=message)


def classify(*checks: CheckRecord, declared: list[str] | None = None, end: ProcessEnd = OK):
    names = [c.name for c in checks] if declared is None else declared
    return classify_attempt(checks=checks, declared=names, end=end)


def test_a_check_that_the_suite_leaves_out_may_be_skipped():
    checks = [check("a"), check("b", "skipped", "no hub")]
    kinds = {"checks": checks, "declared": ["a"], "end": OK}
    assert classify_attempt(**kinds, excused=["b"]) == (AttemptOutcome.PASSED, "")
    outcome, reason = classify_attempt(**kinds, excused=["a"])
    assert (outcome, reason) == (AttemptOutcome.FAILED, "b was skipped, which no suite declares: no hub")
    alone = classify_attempt(checks=checks[1:], declared=[], end=OK, excused=["b"])
    assert alone == (AttemptOutcome.FAILED, "no check was executed")


def test_hundreds_of_failures_are_a_line_and_a_number():
    red = [check(f"test_{number}", "failed", "no") for number in range(540)]
    reason = classify(*red)[1]
    assert reason.startswith("test_0 failed: no; test_1 failed: no; ")
    assert reason.endswith("test_11 failed: no; 528 more")
    assert classify(*red[:12])[1].endswith("test_11 failed: no")


def test_every_check_ran_and_passed():
    assert classify(check("active"), check("parity")) == (AttemptOutcome.PASSED, "")


@pytest.mark.parametrize(
    ("outcome", "words"),
    [("failed", "parity failed: token 3 differs"), ("error", "parity errored: token 3 differs")],
)
def test_a_red_check_fails_the_attempt_and_is_named(outcome, words):
    found = classify(
        check("active"), check("parity", outcome, "token 3 differs\nlong tail"), end=ProcessEnd(exit_code=1)
    )
    assert found == (AttemptOutcome.FAILED, words)


def test_a_red_check_without_a_message_is_still_named():
    assert classify(check("parity", "failed"))[1] == "parity failed"


@pytest.mark.parametrize("outcome", ["underpowered", "unproven"])
def test_open_checks_are_inconclusive(outcome):
    found = classify(check("active"), check("accuracy", outcome, "n is 20"))
    assert found == (AttemptOutcome.INCONCLUSIVE, f"accuracy is {outcome}: n is 20")


def test_a_red_check_beats_an_open_one():
    assert classify(check("a", "unproven"), check("b", "failed"))[0] is AttemptOutcome.FAILED


def test_an_undeclared_skip_is_a_failure():
    found = classify(check("active"), check("rows", "skipped", "no torch"))
    assert found == (AttemptOutcome.FAILED, "rows was skipped, which no suite declares: no torch")


def test_zero_executed_checks_is_a_failure():
    assert classify(declared=[]) == (AttemptOutcome.FAILED, "no check was executed")
    assert "no check was executed" in classify(check("rows", "skipped"))[1]


def test_a_killed_process_names_the_signal_and_what_never_ran():
    outcome, reason = classify(
        check("active"), declared=["active", "parity", "rows"], end=ProcessEnd(signal=9)
    )
    assert outcome is AttemptOutcome.FAILED
    assert reason == "job process was killed by SIGKILL; never ran: parity, rows"


def test_a_check_declared_twice_must_leave_two_records():
    assert classify(check("parity"), declared=["parity", "parity"]) == (
        AttemptOutcome.FAILED,
        "never ran: parity",
    )
    assert classify(check("parity"), check("parity"), declared=["parity"])[0] is AttemptOutcome.PASSED


def test_a_deadline_names_itself_what_failed_before_and_what_never_ran():
    outcome, reason = classify(
        check("active", "failed", "dcp_size is 1"),
        declared=["active", "parity"],
        end=ProcessEnd(signal=9, deadline="check parity"),
    )
    assert outcome is AttemptOutcome.TIMEOUT
    assert reason == "deadline 'check parity' passed; active failed: dcp_size is 1; never ran: parity"


def test_infra_needs_no_check_to_have_failed():
    end = ProcessEnd(exit_code=1, infra="port probe: 30000 is taken by another process")
    assert classify(check("active", "error", "connection refused"), end=end) == (
        AttemptOutcome.INFRA,
        end.infra,
    )
    outcome, reason = classify(check("parity", "failed", "token 3"), end=end)
    assert outcome is AttemptOutcome.FAILED
    assert reason == f"parity failed: token 3; the machine was at fault too: {end.infra}"


def test_infra_beats_the_deadline_it_caused():
    end = ProcessEnd(deadline="launch", infra="gpu probe: Xid 79")
    assert classify(declared=["active"], end=end)[0] is AttemptOutcome.INFRA


def test_an_interrupt_is_not_a_finding():
    outcome, reason = classify(
        check("a", "failed"), declared=["a", "b"], end=ProcessEnd(signal=2, interrupted=True)
    )
    assert (outcome, reason) == (AttemptOutcome.INTERRUPTED, "interrupted; a failed; never ran: b")


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (ProcessEnd(exit_code=3), "job process exited with status 3"),
        (ProcessEnd(exit_code=1), "job process exited with status 1"),
        (ProcessEnd(), "job process left no exit status"),
    ],
)
def test_an_unexplained_end_is_a_failure_though_every_check_passed(end, words):
    assert classify(check("active"), end=end) == (AttemptOutcome.FAILED, words)


def test_an_open_check_does_not_explain_exit_status_1():
    assert classify(check("a", "unproven"), end=ProcessEnd(exit_code=1))[0] is AttemptOutcome.FAILED


def test_a_red_check_explains_status_1_but_no_other():
    assert "exited" not in classify(check("a", "failed"), end=ProcessEnd(exit_code=1))[1]
    assert "exited with status 2" in classify(check("a", "failed"), end=ProcessEnd(exit_code=2))[1]


def test_signal_names():
    assert (signal_name(15), signal_name(200)) == ("SIGTERM", "signal 200")


ENDS = [
    ProcessEnd(exit_code=code, signal=signal, deadline=deadline, infra=infra)
    for code, signal in [(0, None), (1, None), (None, 9), (None, None)]
    for deadline in (None, "job")
    for infra in (None, "probe")
]


@settings(max_examples=150, deadline=None)
@given(
    outcomes=st.lists(st.sampled_from(list(CheckOutcome)), max_size=4),
    lost=st.integers(0, 2),
    end=st.sampled_from(ENDS),
)
def test_green_only_when_everything_is_explained_and_in_any_order(outcomes, lost, end):
    checks = [CheckRecord(name=f"c{i}", outcome=outcome) for i, outcome in enumerate(outcomes)]
    declared = [c.name for c in checks] + [f"lost{i}" for i in range(lost)]
    flawless = set(outcomes) == {CheckOutcome.PASSED} and not lost and end == OK
    found = {
        classify_attempt(checks=order, declared=declared, end=end)[0]
        for order in itertools.islice(itertools.permutations(checks), 6)
    }
    assert len(found) == 1
    (outcome,) = found
    assert (outcome is AttemptOutcome.PASSED) == flawless
    assert (classify_attempt(checks=checks, declared=declared, end=end)[1] == "") == flawless
    if CheckOutcome.FAILED in outcomes:
        assert outcome in (AttemptOutcome.FAILED, AttemptOutcome.TIMEOUT)
    if outcome is AttemptOutcome.INFRA:
        assert end.infra
