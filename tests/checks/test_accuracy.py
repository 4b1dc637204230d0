"""`accuracy` over real sockets: what each kind of trouble is called, and what a baseline and a record add."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_completions import FakeCompletions, serving_completions

from harness.checks import CHECKS, Baseline, CheckContext, CheckResult, MissingBaselineError
from harness.checks.asks import Ask, QuestionAsk, ask_engine
from harness.checks.question_log import QuestionLog
from harness.checks.questions import make_plan
from harness.checks.references import RecordedBaseline, configuration
from harness.engines import EngineClient
from harness.errors import EngineDiedError
from harness.suites import AccuracyParams
from harness.verdict import CheckOutcome, decode_question

PARAMS = AccuracyParams(
    task="sums", questions=128, escalate=256, shots=1, effect=0.2, batch=32, concurrency=8
)
PLAN = make_plan(PARAMS)
MODEL = "fake/sums-1"


@contextmanager
def client_of(**faults: Any) -> Iterator[EngineClient]:
    with serving_completions(FakeCompletions.of(PLAN, **faults)) as url:
        client = EngineClient(url)
        with client.deadline("test", 60):
            yield client
        client.close()


def ask(*asks: Ask, log: Path | None = None, **faults: Any) -> Baseline:
    """What a dcp=1 server of these habits answers."""
    with client_of(**faults) as client:
        answers = {one: ask_engine(client, one, log=QuestionLog(log)) for one in asks}
        return Baseline(info=client.server_info(), answers=answers, origin="fake")


def judge(
    params: AccuracyParams = PARAMS,
    *,
    baseline: dict[str, Any] | None = None,
    references: Sequence[RecordedBaseline] = (),
    log: Path | None = None,
    **faults: Any,
) -> CheckResult:
    """One check; `baseline` are the faults of the dcp=1 server, None for no such server."""
    asks = CHECKS["accuracy"].baseline_asks(params)
    base = None if baseline is None else ask(*asks, log=log, **baseline)
    with client_of(**faults) as client:
        context = CheckContext(
            client=client,
            baseline=base,
            model=MODEL,
            references=tuple(references),
            log=QuestionLog(log),
            ask_more=None if baseline is None else lambda more: ask(more, **baseline),
        )
        return CHECKS["accuracy"].run(params, context)


def recorded(*, correct: int, of: int = 1280, flips: int = 0) -> RecordedBaseline:
    """A record of ten runs that fits the fake."""
    wanted = configuration(PLAN, model=MODEL, told={})
    return RecordedBaseline.model_validate(
        {
            "task": "sums",
            "model": MODEL,
            "fingerprint": wanted.fingerprint,
            "runs": 10,
            "questions": 128,
            "correct": correct,
            "of": of,
            "invalid": 1280 - of,
            "flips": flips,
            "compared": 1152,
            "commit": "0123456789abcdef",
            "date": "2027-01-31",
            "configuration": wanted,
        }
    )


def test_three_kinds_of_trouble_are_three_verdicts_and_none_is_accuracy() -> None:
    refused, cut = judge(refused=0.05), judge(cut=0.3)
    with pytest.raises(EngineDiedError, match=r"after 5\d of 128 questions"):
        judge(dies_at=60)
    assert (refused.outcome, cut.outcome) == (CheckOutcome.FAILED, CheckOutcome.UNPROVEN)
    assert "requests failed, which says nothing of accuracy" in refused.message
    assert "answers cut off, 0 without a number: no score to speak of, and no accuracy failure" in cut.message


@pytest.mark.parametrize("fault", ["refused", "cut", "mute", "aborted", "garbled", "choiceless"])
def test_nothing_that_failed_is_wrong(fault: str) -> None:
    """All scored answers are right, whatever becomes of the others."""
    faults: dict[str, Any] = {fault: 0.2}
    figures = judge(**faults).figures
    assert figures["correct"] == figures["scored"] < figures["asked"]
    apart = figures["truncated"] + figures["unparsable"] + figures["failed_requests"]
    assert figures["scored"] + apart == figures["asked"]


def test_what_went_before_a_death_is_logged(tmp_path: Path) -> None:
    log = tmp_path / "questions.jsonl"
    with pytest.raises(EngineDiedError):
        judge(dies_at=60, log=log)
    kept = [decode_question(line) for line in log.read_bytes().splitlines()]
    assert 52 <= len(kept) <= 59  # eight were in flight
    assert {asked.role for asked in kept} == {"engine"}


def test_every_answer_of_every_engine_is_logged(tmp_path: Path) -> None:
    log = tmp_path / "questions.jsonl"
    judge(PARAMS.model_copy(update={"aa": 1}), baseline={}, log=log)
    roles = [decode_question(line).role for line in log.read_bytes().splitlines()]
    assert {role: roles.count(role) for role in roles} == {
        "baseline": 128,
        "baseline-again": 128,
        "engine": 128,
    }


def test_an_equal_engine_passes_and_says_what_it_could_have_found() -> None:
    result = judge(baseline={})
    assert result.outcome is CheckOutcome.PASSED
    for part in ("128 of 128 right = 1.000 [.971, 1.000]", "0 flips", "95 % power", "A/A not measured"):
        assert part in result.message
    assert all(line.startswith("sums (synthetic, not GSM8K): ") for line in result.message.splitlines())


def test_wrong_answers_are_flips_told_with_both_answers() -> None:
    result = judge(baseline={}, wrong=0.1)
    assert result.outcome is CheckOutcome.FAILED
    first = result.figures["flips"][0]
    right, wrong = first["baseline"]["answer"], first["engine"]["answer"]
    assert int(wrong) == int(right) + 1
    assert f"question {first['question']}: expected {right}; dcp=1 {right} (" in result.message
    assert f"here {wrong} (" in result.message


def test_it_stops_once_the_end_is_known_and_tells_no_accuracy_then() -> None:
    early = judge(baseline={}, wrong=0.5)
    assert early.figures["asked"] == 32
    assert early.figures["accuracy"] is None
    assert "a stopped count is biased" in early.message
    whole = judge(PARAMS.model_copy(update={"early_stop": "none", "escalate": None}), baseline={}, wrong=0.5)
    assert whole.figures["asked"] == 128


def test_a_suspicious_first_stage_asks_all_of_both_engines() -> None:
    """One flip in 128 is little for a gate, and too much to leave it at that."""
    params = PARAMS.model_copy(update={"early_stop": "none"})
    seed = next(s for s in range(100) if 2 <= _wrong(s, 128) <= 3 and _wrong(s, 256) >= 6)
    result = judge(params, baseline={}, wrong=0.02, seed=seed)
    assert result.figures["asked"] == 256
    assert result.outcome is CheckOutcome.FAILED
    assert len(result.figures["flips"]) == _wrong(seed, 256)


def _wrong(seed: int, questions: int) -> int:
    fake = FakeCompletions.of(PLAN, wrong=0.02, seed=seed)
    return sum(fake.fault(item.prompt) == "wrong" for item in PLAN.items[:questions])


def test_a_record_alone_is_enough_to_judge_by() -> None:
    record = recorded(correct=1216)
    fine = judge(references=[record], wrong=0.05)
    assert fine.outcome is CheckOutcome.PASSED, fine.message
    assert "1,216 of 1,280 in 10 runs, 2027-01-31, commit 0123456789ab" in fine.message
    broken = judge(references=[record], wrong=0.6)
    assert broken.outcome is CheckOutcome.FAILED
    assert broken.figures["asked"] < 128


def test_a_record_of_another_configuration_is_never_used() -> None:
    result = judge(PARAMS.model_copy(update={"max_new_tokens": 64}), references=[recorded(correct=1216)])
    assert result.outcome is CheckOutcome.UNPROVEN
    assert "no baseline is recorded for this configuration" in result.message
    assert "recorded for max_new_tokens 512, this run has max_new_tokens 64" in result.message


def test_a_noisy_baseline_excuses_as_many_flips() -> None:
    """The A/A run of a noisy engine shows the noise, so its flips are no finding; a quiet one's are."""
    noisy = recorded(correct=1216, flips=60)
    quiet = recorded(correct=1216)
    seed = next(s for s in range(100) if 7 <= _five(s) <= 9)
    params = PARAMS.model_copy(update={"early_stop": "none", "escalate": None})
    facts: dict[str, Any] = {"baseline": {}, "wrong": 0.06, "seed": seed}
    assert judge(params, references=[quiet], **facts).outcome is CheckOutcome.FAILED
    assert judge(params, references=[noisy], **facts).outcome is CheckOutcome.PASSED


def _five(seed: int) -> int:
    fake = FakeCompletions.of(PLAN, wrong=0.06, seed=seed)
    return sum(fake.fault(item.prompt) == "wrong" for item in PLAN.items[:128])


def test_checks_of_one_run_share_their_false_alarms() -> None:
    with client_of() as client:
        context = CheckContext(client=client, baseline=ask(*CHECKS["accuracy"].baseline_asks(PARAMS)))
        alone = CHECKS["accuracy"].run(PARAMS, context)
        among_ten = CHECKS["accuracy"].run(PARAMS, replace(context, gated_checks=10))
    assert among_ten.figures["alpha"] == pytest.approx(alone.figures["alpha"] / 10)


def test_a_baseline_with_failed_requests_is_nothing_to_compare_with() -> None:
    with pytest.raises(MissingBaselineError, match=r"baseline: \d+ of 128 requests failed"):
        judge(baseline={"refused": 0.05})


def test_a_baseline_that_was_asked_something_else_is_refused() -> None:
    other = QuestionAsk(plan=PLAN.part(0, 7))
    with (
        client_of() as client,
        pytest.raises(MissingBaselineError, match="was not asked these 128 questions"),
    ):
        CHECKS["accuracy"].run(PARAMS, CheckContext(client=client, baseline=ask(other)))


def judge_noisy(params: AccuracyParams, **faults: Any) -> CheckResult:
    """A good engine whose runs all differ alike: once under test, twice as the dcp=1 baseline (`aa: 1`)."""
    params = params.model_copy(update={"aa": 1})
    (asked,) = CHECKS["accuracy"].baseline_asks(params)
    runs = [ask(QuestionAsk(plan=asked.plan), seed=seed, **faults) for seed in (1, 2)]
    both = tuple(run.runs_of(QuestionAsk(plan=asked.plan))[0] for run in runs)
    with client_of(seed=3, **faults) as client:
        baseline = replace(runs[0], answers={asked: both})
        return CHECKS["accuracy"].run(params, CheckContext(client=client, baseline=baseline))


def test_flips_that_dcp1_has_itself_do_not_end_the_asking() -> None:
    result = judge_noisy(PARAMS, wrong=0.08)
    assert result.figures["stopped"] is None, result.message
    assert result.figures["asked"] >= 128
    assert result.outcome is not CheckOutcome.FAILED


def test_an_engine_that_finishes_now_and_then_is_held_against_itself() -> None:
    result = judge_noisy(PARAMS.model_copy(update={"escalate": None}), cut=0.08)
    assert result.outcome is CheckOutcome.PASSED, result.message
    assert "A/A" in next(line for line in result.message.splitlines() if "finished as dcp=1" in line)


@pytest.mark.parametrize("record", ["one", "several"])
def test_a_record_of_next_to_nothing_is_weighed(record: str) -> None:
    """Of one question, asked in ten runs, few answers could be scored."""
    of = {"one": 2, "several": 9}[record]
    tiny = recorded(correct=1).model_copy(
        update={"questions": 1, "of": of, "invalid": 10 - of, "compared": 1}
    )
    assert judge(references=[tiny]).outcome is not CheckOutcome.ERROR


@pytest.mark.parametrize(
    "info",
    [
        {},
        {"model": ""},
        {"model": MODEL, "model_sha256": "no hash"},
        {"model": MODEL, "model_sha256": 7},
        {"model": MODEL, "dtype": ""},
        {"model": MODEL, "dtype": "x" * 2000},
    ],
)
def test_an_engine_that_tells_rubbish_of_itself_is_still_compared(info: Any) -> None:
    """The fake's info is what `/server_info` answers."""
    base = ask(*CHECKS["accuracy"].baseline_asks(PARAMS))
    for model in (MODEL, None):
        with client_of(info=info) as client:
            context = CheckContext(
                client=client, baseline=base, model=model, references=(recorded(correct=1216),)
            )
            assert CHECKS["accuracy"].run(PARAMS, context).outcome is CheckOutcome.PASSED


def test_another_order_of_questions_is_another_configuration() -> None:
    """Five runs of the first 200 say no more than one run does of any other 200."""
    other = make_plan(PARAMS.model_copy(update={"seed": 1}))
    one, two = (configuration(plan, model=MODEL, told={}) for plan in (PLAN, other))
    assert one.fingerprint != two.fingerprint


def test_too_few_questions_are_told_as_what_there_is() -> None:
    result = judge(PARAMS.model_copy(update={"escalate": 5000}), baseline={})
    assert result.figures["asked"] == 128
    assert "were asked" not in result.message
    assert "only 1319 of the 5000 questions asked for are there" in result.message


def test_flips_of_many_runs_say_little_of_other_questions() -> None:
    """Ten runs of 128 questions, held against 256: half of what they say."""
    for escalate, told in ((None, "A/A 9 flips of 1152"), (256, "A/A 3 flips of 320")):
        params = PARAMS.model_copy(update={"escalate": escalate})
        assert told in judge(params, baseline={}, references=[recorded(correct=1280, flips=9)]).message
