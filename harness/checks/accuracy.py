"""`accuracy`: a scored task, gated against a recorded baseline and against dcp=1 on the same questions.

Phases: ask the first stage in whole batches, stopping early where the end is known; where it looks suspicious
and the suite allows it, ask all questions, of the engine and then of its baseline; judge. What failed, was cut
off or holds no number is told apart and never wrong; an engine that dies ends the check as its own failure.
"""

from __future__ import annotations

from harness.checks.accuracy_study import Asking, Study, ask_of, first_stage, reference_of
from harness.checks.accuracy_words import figures_of, tell
from harness.checks.asks import QuestionAsk
from harness.checks.base import BaselineUse, CheckContext, CheckResult
from harness.checks.questions import QuestionPlan, empty_cache, make_plan
from harness.checks.references import RecordedBaseline, configuration, find, why_none
from harness.errors import EngineError
from harness.suites import AccuracyParams
from harness.verdict.accuracy import Demand, judge_accuracy, suspicious
from harness.verdict.gates import early_stop_recorded
from harness.verdict.watch import StopMode

baseline_use = BaselineUse.OPTIONAL


def baseline_asks(params: AccuracyParams) -> list[QuestionAsk]:
    return [ask_of(first_stage(make_plan(params), params), params)]


def run(params: AccuracyParams, context: CheckContext) -> CheckResult:
    study = _prepare(params, context)
    empty_cache(context.client)
    asking = Asking(study, context)
    asking.ask_first()
    if study.rest.items and asking.watch.reason is None and suspicious(asking.evidence):
        asking.ask_rest()
    judgement = judge_accuracy(
        asking.evidence,
        Demand(alpha=study.alpha_of_gates, effect=params.effect),
        stop=asking.sequential_stop,
        planned=len(study.plan.items) if study.rest.items and asking.watch.reason is None else None,
    )
    return CheckResult(
        outcome=judgement.outcome,
        message=tell(asking, judgement),
        figures=figures_of(asking, judgement),
    )


def _prepare(params: AccuracyParams, context: CheckContext) -> Study:
    """Everything that is known before the first question goes out."""
    plan = make_plan(params)
    recorded, why_not = _recorded(plan, context)
    alpha = params.alpha / context.gated_checks
    test = None
    if recorded is not None and StopMode(params.early_stop) is not StopMode.NONE:
        n = min(params.questions, len(plan.items))
        known = reference_of(recorded).over(n)
        test = early_stop_recorded(n, correct=known.correct, of=known.scored, alpha=alpha)
    return Study(
        plan=plan,
        params=params,
        recorded=recorded,
        why_no_record=why_not,
        origin=None if context.baseline is None else context.baseline.origin,
        alpha=alpha,
        test=test,
    )


def _recorded(plan: QuestionPlan, context: CheckContext) -> tuple[RecordedBaseline | None, str]:
    """The record that fits this configuration, or why there is none."""
    if not context.references:
        return None, "no baseline is recorded: see `harness baseline record --help`"
    info = context.client.self_description()
    told = {} if info is None else info.raw
    model = context.model or told.get("model") or told.get("model_path") or context.client.served_model()
    if not model:
        return None, "the engine does not say which model it serves: give --model"
    try:
        wanted = configuration(plan, model=str(model), told=told)
    except EngineError as error:
        return None, f"no baseline can be looked up: {error}"
    found = find(context.references, wanted)
    return found, "" if found else why_none(context.references, wanted)
