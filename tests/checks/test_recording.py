"""Measuring a baseline over real sockets: what is counted, and what keeps a record from being made."""

from __future__ import annotations

import pytest
from fake_completions import FakeCompletions, serving_completions

from harness.checks.questions import QuestionPlan, make_plan
from harness.checks.recording import as_record, measure
from harness.checks.references import configuration
from harness.engines import EngineClient
from harness.errors import EngineDiedError, EngineError
from harness.suites import AccuracyParams
from harness.verdict import QuestionOutcome
from harness.verdict.sample import Sample

TOLD = {"model": "fake/sums-1", "dtype": "fp32"}


@pytest.fixture(scope="module")
def plan() -> QuestionPlan:
    return make_plan(AccuracyParams(task="sums", questions=60, shots=0, batch=20, concurrency=8))


def measured(script: FakeCompletions, plan: QuestionPlan, *, runs: int = 5) -> tuple[list[Sample], list[int]]:
    """The samples, and after how many questions of which run each batch was told: `run * 1000 + questions`."""
    told: list[int] = []
    with serving_completions(script) as url:
        client = EngineClient(url)
        samples = measure(
            client,
            plan,
            runs=runs,
            seconds=60.0,
            progress=lambda run, records: told.append(run * 1000 + len(records)),
        )
        client.close()
    return samples, told


def test_counts_over_all_runs_and_every_batch_is_told(plan):
    samples, told = measured(FakeCompletions.of(plan, wrong=0.2, cut=0.1), plan)
    record = as_record(samples, configuration(plan, TOLD), commit="c" * 40, note="here")
    one = samples[0]
    assert one.count(QuestionOutcome.WRONG) > 0
    assert one.unfinished > 0
    assert (record.correct, record.of, record.invalid) == (
        5 * one.correct,
        5 * one.scored,
        5 * one.unfinished,
    )
    assert (record.runs, record.questions, record.flips, record.compared) == (5, 60, 0, 5 * one.scored // 2)
    assert (record.commit, record.note, record.model) == ("c" * 40, "here", "fake/sums-1")
    assert told == [run * 1000 + 20 for run in range(1, 6) for _ in range(3)]


def test_the_rarer_outcomes_of_a_question_are_its_flips(plan):
    def one(seed: int) -> Sample:
        samples, _ = measured(FakeCompletions.of(plan, wrong=0.3, seed=seed), plan, runs=1)
        return samples[0]

    first, other = one(1), one(2)
    differ = sum(a.outcome is not b.outcome for a, b in zip(first.records, other.records, strict=True))
    assert differ > 0
    record = as_record([first, other, first, other, first], configuration(plan, TOLD), commit="c")
    assert (record.flips, record.compared) == (2 * differ, 5 * 60 // 2)


def test_the_prefix_cache_is_emptied_before_each_run(plan):
    """The script counts what it is asked; a path of its own tells the flushes apart."""
    flushed: list[str] = []

    class Client(EngineClient):
        def flush_cache(self) -> None:
            flushed.append("flush")
            super().flush_cache()

    with serving_completions(FakeCompletions.of(plan)) as url:
        client = Client(url)
        measure(
            client, plan, runs=2, seconds=60.0, progress=lambda run, records: flushed.append(f"run {run}")
        )
        client.close()
    assert flushed == ["flush", *["run 1"] * 3, "flush", *["run 2"] * 3]


def test_one_failed_request_is_named_and_ends_it_after_its_batch(plan):
    script = FakeCompletions.of(plan, refused=0.1)
    first = next(n for n, item in enumerate(plan.items) if script.fault(item.prompt) == "refused")
    with pytest.raises(
        EngineError, match=r"run 1: .* question \d+ failed .*cosmic ray.*nothing was recorded"
    ) as caught:
        measured(script, plan)
    assert f"question {plan.items[first].number} " in str(caught.value)
    assert len(script.bodies) == (first // 20 + 1) * 20


def test_an_engine_that_dies_is_told_as_that(plan):
    with pytest.raises(EngineDiedError):
        measured(FakeCompletions.of(plan, dies_at=30), plan)


def test_answers_none_of_which_can_be_scored_are_no_baseline(plan):
    samples, _ = measured(FakeCompletions.of(plan, mute=1.0), plan)
    with pytest.raises(EngineError, match="none of 60 answers could be scored"):
        as_record(samples, configuration(plan, TOLD), commit="c")
