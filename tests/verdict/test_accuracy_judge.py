"""The judgement of an accuracy check: every rule alone, and none of them over wrong ground."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest
from answer_letters import sample
from hypothesis import given
from hypothesis import strategies as st

from harness.verdict import CheckOutcome
from harness.verdict.accuracy import Demand, Judgement, judge_accuracy, suspicious
from harness.verdict.accuracy_gates import Evidence, GateName, Reference
from harness.verdict.distributions import Binomial
from harness.verdict.gates import Noise, baseline_limit, early_stop_recorded, paired_p
from harness.verdict.sample import Sample, pair
from harness.verdict.watch import Stop, StopReason

DEMAND = Demand(alpha=1e-3, effect=0.2)
RECORD = Reference(correct=940, scored=1000, asked=1000, told="940 of 1,000")


def judge(engine: str, baseline: str | None = None, **facts: object) -> Judgement:
    demand = facts.pop("demand", DEMAND)
    base = None if baseline is None else sample(baseline)
    evidence = Evidence(engine=sample(engine), baseline=base, **facts)  # type: ignore[arg-type]
    return judge_accuracy(evidence, demand)  # type: ignore[arg-type]


def rejected(judgement: Judgement) -> set[GateName]:
    return {gate.name for gate in judgement.gates if gate.rejected}


def test_equal_answers_pass() -> None:
    found = judge("+" * 190 + "-" * 10, "+" * 190 + "-" * 10, reference=RECORD)
    assert (found.outcome, found.why, rejected(found)) == (CheckOutcome.PASSED, "", set())


def test_a_handful_of_flips_is_a_finding_at_equal_accuracy() -> None:
    """Three lost, three gained: no score sees it."""
    found = judge("---+++" + "+" * 194, "+++---" + "+" * 194)
    assert found.outcome is CheckOutcome.FAILED
    assert rejected(found) == {GateName.FLIPS}
    assert "6 of 200 answers flipped against dcp=1 (3 lost, 3 gained)" in found.why


def test_the_same_flips_are_noise_where_the_engine_is_noisy() -> None:
    noisy = Noise(flips=30, compared=1000)
    assert judge("---+++" + "+" * 194, "+++---" + "+" * 194, noise=noisy).outcome is CheckOutcome.PASSED


def test_a_score_below_the_record_fails_without_a_baseline() -> None:
    found = judge("+" * 150 + "-" * 50, reference=RECORD)
    assert found.outcome is CheckOutcome.FAILED
    assert rejected(found) == {GateName.RECORDED}
    assert "150 of 200 right is too few for 940 of 1,000" in found.why


def test_one_way_losses_fail_the_drop_gate_in_a_noisy_engine() -> None:
    noisy = Noise(flips=80, compared=1000)
    found = judge("-" * 20 + "+" * 180, "+" * 200, noise=noisy)
    assert GateName.DROP in rejected(found)
    assert "20 answers lost and 0 gained" in found.why


def test_failed_requests_are_no_accuracy_failure() -> None:
    found = judge("e" * 10 + "+" * 190, "+" * 200, reference=RECORD)
    assert found.outcome is CheckOutcome.FAILED
    assert "10 of 200 requests failed, which says nothing of accuracy" in found.why
    assert rejected(found) == set()


@pytest.mark.parametrize(
    ("letter", "told"), [("t", "60 of 200 answers cut off"), ("u", "60 without a number")]
)
def test_answers_that_cannot_be_scored(letter: str, told: str) -> None:
    """Nothing to compare with: unproven. Where dcp=1, or the record, finishes: a finding of its own kind."""
    engine = letter * 60 + "+" * 140
    alone = judge(engine)
    assert alone.outcome is CheckOutcome.UNPROVEN
    for found, name in (
        (judge(engine, "+" * 200), GateName.FINISHED_PAIRED),
        (judge(engine, reference=RECORD), GateName.FINISHED_RECORDED),
    ):
        assert found.outcome is CheckOutcome.FAILED
        assert rejected(found) == {name}
    for judgement in (alone, found):
        assert told in judgement.why
        assert "no accuracy failure" in judgement.why


def test_answers_that_dcp1_cuts_off_too_are_no_finding() -> None:
    assert judge("t" * 60 + "+" * 140, "t" * 60 + "+" * 140).outcome is CheckOutcome.PASSED


def test_nothing_to_compare_with_proves_nothing() -> None:
    assert judge("+" * 200).outcome is CheckOutcome.UNPROVEN
    assert judge("t" * 5, "t" * 5).outcome is CheckOutcome.UNPROVEN


def test_too_few_questions_are_underpowered() -> None:
    found = judge("+" * 20, "+" * 20, demand=Demand(alpha=1e-3, effect=0.03))
    assert found.outcome is CheckOutcome.UNDERPOWERED
    assert "20 questions find a drop of" in found.why
    assert "3.0 points must be found" in found.why


def test_a_baseline_that_answers_nothing_right_leaves_nothing_to_lose() -> None:
    """Both engines say the same nonsense: no drop could be found, so none was looked for."""
    for letters in ("-" * 200, "-" * 195 + "+" * 5):
        found = judge(letters, letters)
        assert found.outcome is CheckOutcome.UNDERPOWERED
        assert "200 questions find no drop" in found.why


def test_a_gate_that_can_never_fail_passes_nobody_whatever_effect_is_asked_for() -> None:
    found = judge("+", "+", demand=Demand(alpha=1e-3, effect=1.0))
    assert found.outcome is CheckOutcome.UNDERPOWERED
    assert "1 questions find no drop with 95 % power" in found.why


def test_a_second_stage_finds_what_the_first_suspects() -> None:
    evidence = Evidence(engine=sample("+" * 200), baseline=sample("+" * 200))
    demand = Demand(alpha=1e-3, effect=0.04)
    assert judge_accuracy(evidence, demand).outcome is CheckOutcome.UNDERPOWERED
    assert judge_accuracy(evidence, demand, planned=1319).outcome is CheckOutcome.PASSED


def test_suspicion_starts_where_two_stages_should() -> None:
    """200 questions against .94 go on below 185 right (statistics of two-stage gates)."""
    big = Reference(correct=94_000_000, scored=100_000_000, asked=100_000_000, told="")

    def doubts(right: int) -> bool:
        return suspicious(Evidence(engine=sample("+" * right + "-" * (200 - right)), reference=big))

    assert doubts(184)
    assert not doubts(185)


def test_a_sequential_test_speaks_for_the_record() -> None:
    evidence = Evidence(engine=sample("-" * 32), reference=RECORD)
    broken = judge_accuracy(evidence, DEMAND, stop=_stop(StopReason.BROKEN))
    assert broken.outcome is CheckOutcome.FAILED
    assert [gate.name for gate in broken.gates if gate.rejected] == [GateName.SEQUENTIAL]
    fine = judge_accuracy(
        Evidence(engine=sample("+" * 64), reference=RECORD),
        DEMAND,
        stop=_stop(StopReason.FINE),
    )
    assert fine.outcome is CheckOutcome.PASSED


def _stop(reason: StopReason, *, alpha: float = 1e-3) -> Stop:
    test = early_stop_recorded(200, correct=RECORD.correct, of=RECORD.scored, alpha=alpha)
    assert test is not None
    return Stop(reason=reason, test=test, alpha=alpha / 2, questions=200)


def test_a_stop_for_a_good_engine_claims_what_the_gates_at_the_end_would_find() -> None:
    """They share alpha (Holm), so each is blunter than the test alone reckons with: 93 % instead of 95."""
    engine, stop = sample("+" * 64), _stop(StopReason.FINE)
    drops = [
        judge_accuracy(
            Evidence(engine=engine, baseline=baseline, reference=RECORD),
            Demand(alpha=5e-4, effect=0.2),
            stop=stop,
        )
        .gates[0]
        .drop
        for baseline in (None, engine)
    ]
    assert drops[0] is not None
    assert drops[1] is not None
    assert stop.test.drop < drops[0] < drops[1]
    # By exact reckoning the final gate misses such an engine in less than half of the 5 % allowed.
    limit = baseline_limit(200, correct=RECORD.correct, of=RECORD.scored, alpha=5e-4 / 4)
    assert Binomial(200, 0.94 - drops[1]).below(limit.fail_below) >= 0.975 - 1e-6


@given(st.lists(st.tuples(st.sampled_from("+-tue"), st.sampled_from("+-tue")), max_size=60), st.randoms())
def test_pairing_counts_what_a_hand_count_does_in_any_order(
    letters: list[tuple[str, str]], rng: random.Random
) -> None:
    engine = list(sample("".join(a for a, _ in letters)).records)
    baseline = list(sample("".join(b for _, b in letters)).records)
    rng.shuffle(engine)
    rng.shuffle(baseline)
    paired = pair(Sample(records=tuple(engine)), Sample(records=tuple(baseline)))
    assert paired.lost == letters.count(("-", "+"))
    assert paired.gained == letters.count(("+", "-"))
    assert paired.compared == sum(a in "+-" and b in "+-" for a, b in letters)
    one_only = sum((a in "+-") != (b in "+-") for a, b in letters if "e" not in (a, b))
    assert len(paired.unfinished) == one_only


@given(st.text(alphabet="+-tue", max_size=80), st.booleans())
def test_no_failure_is_ever_called_a_wrong_answer(letters: str, paired: bool) -> None:
    """Turning failures into other failures never makes an accuracy gate speak."""
    found = judge(letters, "+" * len(letters) if paired else None, reference=RECORD)
    plain = letters.translate(str.maketrans("", "", "tue"))
    kept = judge(plain, "+" * len(plain) if paired else None, reference=RECORD)
    about_accuracy = {GateName.RECORDED, GateName.DROP, GateName.FLIPS}
    assert {g.name: g.p for g in found.gates if g.name in about_accuracy} == {
        g.name: g.p for g in kept.gates if g.name in about_accuracy
    }


def test_a_second_stage_finds_no_more_than_the_record_may_weigh_there() -> None:
    """Five runs of the same 200 questions: over 1,319 they are one."""
    runs = Reference(correct=940, scored=1000, asked=1000, told="", runs=5, questions=200)
    single = Reference(correct=188, scored=200, asked=200, told="")
    assert runs.over(200) == runs
    assert (runs.over(201).correct, runs.over(201).scored, runs.over(201).asked) == (188, 200, 200)
    engine = sample("+" * 188 + "-" * 12)
    both = [
        judge_accuracy(Evidence(engine=engine, reference=each), DEMAND, planned=1319).found
        for each in (runs, single)
    ]
    assert both[0] is not None
    assert both[1] is not None
    assert both[0] >= 0.06  # what the second stage alone finds against 188 of 200
    assert both[0] <= both[1]  # the first stage is held against all five runs


def test_a_prompt_that_is_asked_twice_has_two_pairs() -> None:
    """Two questions of one file may share their text: each is compared with its own answer."""
    engine, baseline = sample("+-"), sample("+-")
    twins = [
        Sample(records=tuple(replace(record, prompt_hash="twin") for record in each.records))
        for each in (engine, baseline)
    ]
    paired = pair(*twins)
    assert (paired.compared, paired.flips) == (2, ())


def test_a_baseline_that_leaves_answers_unfinished_is_no_fault_of_the_engine() -> None:
    """All are cut off at dcp 1 and none here: nothing was compared, and nothing is held against the engine."""
    found = judge("+" * 200, "t" * 200)
    assert found.outcome is CheckOutcome.UNDERPOWERED
    assert rejected(found) == set()


@pytest.mark.parametrize("flips", [0, 3, 12, 40])
def test_the_drop_gate_tells_its_true_alpha_and_where_it_fails(flips: int) -> None:
    """`fails from L lost of N flips on (alpha A)`: with L it fails, with one less it does not, and A is that p."""
    found = judge("-" * (flips // 2) + "+" * (200 - flips // 2), "+" * 200)
    gate = next(gate for gate in found.gates if gate.name is GateName.DROP)
    lost, of = map(int, re.findall(r"\d+", gate.limit))
    share = DEMAND.alpha / len(found.gates)
    assert gate.alpha == paired_p(lost, of - lost) <= share
    assert paired_p(lost - 1, of - lost + 1) > share
