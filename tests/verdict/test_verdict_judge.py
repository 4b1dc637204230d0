"""`judge_job`, `needs_retry` and `exit_code`: the verdict table, in any order where order must not matter."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.verdict import (
    AttemptOutcome,
    AttemptRecord,
    CheckOutcome,
    CheckRecord,
    Judged,
    Verdict,
    exit_code,
    judge_job,
    needs_retry,
    nothing_ran,
    speaks_of_code,
)

P, F, T, I, N, X = "passed", "failed", "timeout", "infra", "inconclusive", "interrupted"  # noqa: E741


def attempts(*outcomes: str | None) -> list[AttemptRecord]:
    return [
        AttemptRecord(n=n, outcome=outcome and AttemptOutcome(outcome), reason=f"{outcome} {n}")
        for n, outcome in enumerate(outcomes, start=1)
    ]


@pytest.mark.parametrize(
    ("outcomes", "verdict", "reason"),
    [
        ([P], "passed", ""),
        ([P, P, P], "passed", ""),
        ([I, P], "passed", "after the machine failed once: infra 1"),
        ([I, I, P], "passed", "after the machine failed twice: infra 2"),
        ([I, I, I], "infra", "the machine failed 3 times; last: infra 3"),
        ([I], "infra", "the machine failed once; last: infra 1"),
        ([P, I, I, I], "infra", "the machine failed 3 times; last: infra 4"),
        ([I, P, I, P, I, P], "passed", "after the machine failed 3 times: infra 5"),
        ([F], "failed", "failed 1"),
        ([I, F], "failed", "attempt 2: failed 2"),
        ([I, I, I, F], "failed", "attempt 4: failed 4"),
        ([F, F], "failed", "attempt 1: failed 1"),
        ([T], "timeout", "timeout 1"),
        ([T, F], "failed", "attempt 2: failed 2"),
        ([P, F, P], "flaky", "2 passed, 1 did not; attempt 2: failed 2"),
        ([T, P], "flaky", "1 passed, 1 did not; attempt 1: timeout 1"),
        ([N], "inconclusive", "inconclusive 1"),
        ([P, N], "inconclusive", "inconclusive 2"),
        ([N, F], "failed", "attempt 2: failed 2"),
        ([X], "not_run", "the run ended first"),
        ([P, X], "not_run", "the run ended first"),
        ([None], "not_run", "the run ended first"),
        ([], "not_run", "no attempt was made"),
    ],
)
def test_the_table(outcomes, verdict, reason):
    assert judge_job(attempts(*outcomes)) == (Verdict(verdict), reason)


def test_not_run_and_skipped_carry_their_reasons():
    assert judge_job([], not_run="no pool has 4×b200") == (Verdict.NOT_RUN, "no pool has 4×b200")
    assert judge_job([], skipped="waits for a kernel") == (Verdict.SKIPPED, "waits for a kernel")
    assert judge_job(attempts(I), not_run="the run ended first") == (Verdict.NOT_RUN, "the run ended first")


def test_a_red_attempt_stands_when_the_run_ended_first():
    assert judge_job(attempts(F, X), not_run="the run ended first")[0] is Verdict.FAILED


def judged_by_a_check(*outcomes: str) -> list[AttemptRecord]:
    """Attempts that left a check of the same outcome where a check can have it."""
    checks = {P: (CheckRecord(name="parity", outcome=CheckOutcome.PASSED),),
              F: (CheckRecord(name="parity", outcome=CheckOutcome.FAILED),)}  # fmt: skip
    return [replace(attempt, checks=checks.get(attempt.outcome or "", ())) for attempt in attempts(*outcomes)]


@pytest.mark.parametrize(
    ("outcomes", "earlier", "verdict"),
    [
        ([F], [P], "flaky"),
        ([P], [F], "flaky"),
        ([P], [P, I], "passed"),
        ([F], [F], "failed"),
        ([N], [F], "inconclusive"),
        ([], [F], "not_run"),
        ([T], [P], "timeout"),
    ],
)
def test_a_pass_and_a_failure_at_one_engine_sha_are_a_flake(outcomes, earlier, verdict):
    made = judged_by_a_check(*outcomes)
    assert judge_job(made, earlier=map(AttemptOutcome, earlier))[0] is Verdict(verdict)


def test_an_engine_that_was_killed_is_no_flake():
    assert judge_job(attempts(F), earlier=[AttemptOutcome.PASSED])[0] is Verdict.FAILED


@pytest.mark.parametrize(("outcome", "speaks"), [(P, True), (F, True), (T, False), (I, False), (N, False)])
def test_what_speaks_of_the_code(outcome, speaks):
    assert speaks_of_code(judged_by_a_check(outcome)[0]) is speaks
    assert not speaks_of_code(attempts(F)[0])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([P, F, T, N]), min_size=1, max_size=6), st.randoms())
def test_repeats_give_the_same_verdict_in_any_order(outcomes, random):
    shuffled = outcomes.copy()
    random.shuffle(shuffled)
    assert judge_job(attempts(*outcomes))[0] is judge_job(attempts(*shuffled))[0]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([P, F, T, N, I, X]), max_size=7))
def test_no_red_attempt_is_ever_hidden_and_green_needs_a_pass(outcomes):
    verdict, reason = judge_job(attempts(*outcomes))
    assert (verdict in (Verdict.FAILED, Verdict.TIMEOUT, Verdict.FLAKY)) == bool({F, T} & set(outcomes))
    if verdict is Verdict.PASSED:
        assert outcomes[-1] == P
        assert set(outcomes) <= {P, I}
        assert "III" not in "".join("I" if o == I else "." for o in outcomes)
    assert reason or verdict is Verdict.PASSED


@pytest.mark.parametrize(
    ("outcomes", "again"),
    [
        *[([outcome], False) for outcome in (P, F, T, N, X)],
        ([], False),
        ([I], True),
        ([I, I], True),
        ([I, I, I], False),
        ([I, P], False),
        ([I, I, P, I], True),
        ([P, I, I, I], False),
    ],
)
def test_only_infra_is_retried_and_at_most_twice(outcomes, again):
    assert needs_retry(attempts(*outcomes)) is again


# verdict → exit share beside a job that ran, when the profile was chosen by `auto` and no flag is given
SHARES = {
    "passed": 0,
    "skipped": 0,
    "not_run": 0,
    "inconclusive": 3,
    "infra": 3,
    "failed": 1,
    "timeout": 1,
    "flaky": 1,
}


def judged(*verdicts: str, by_name: bool = False) -> list[Judged]:
    return [Judged(verdict=Verdict(verdict), asked_by_name=by_name) for verdict in verdicts]


@pytest.mark.parametrize(("verdict", "share"), SHARES.items())
def test_exit_share_of_each_verdict(verdict, share):
    assert exit_code(judged("passed", verdict)) == share
    assert exit_code(judged("skipped", verdict)) == share


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([*SHARES]), min_size=1, max_size=4), *[st.booleans() for _ in range(3)])
def test_nothing_ran_is_never_green(verdicts, by_name, require_all, allow_flaky):
    code = exit_code(judged(*verdicts, by_name=by_name), require_all=require_all, allow_flaky=allow_flaky)
    if all(verdict == "not_run" for verdict in verdicts):
        assert code == 3
    if code == 0:
        assert {"passed", "skipped", "flaky"} & set(verdicts)


def test_a_declared_skip_is_a_decision_and_not_nothing():
    assert exit_code(judged("skipped", "skipped")) == 0
    assert nothing_ran([Verdict.NOT_RUN, Verdict.NOT_RUN])
    for other in [None, *(verdict for verdict in Verdict if verdict is not Verdict.NOT_RUN)]:
        assert not nothing_ran([Verdict.NOT_RUN, other])
    assert not nothing_ran([])


def test_not_run_counts_when_asked_by_name_or_when_all_are_required():
    assert exit_code(judged("passed", "not_run", by_name=True)) == 3
    assert exit_code(judged("passed", "not_run"), require_all=True) == 3
    assert exit_code(judged("passed", by_name=True), require_all=True) == 0


def test_flaky_may_be_allowed_but_excuses_nothing_else():
    assert exit_code(judged("flaky"), allow_flaky=True) == 0
    assert exit_code(judged("flaky", "failed"), allow_flaky=True) == 1


def test_interrupt_and_empty_selection():
    assert exit_code(judged("failed"), interrupted=True) == 130
    assert exit_code([]) == 2
    assert exit_code([], interrupted=True) == 130


def test_1_beats_3_beats_0_in_any_order():
    for chosen in itertools.combinations_with_replacement(SHARES, 3):
        found = {exit_code(judged(*order)) for order in itertools.permutations(chosen)}
        shares = [SHARES[verdict] if set(chosen) != {"not_run"} else 3 for verdict in chosen]
        assert found == {1 if 1 in shares else max(shares)}
