"""What one accuracy check is going to do, and the asking of it: the plan before the first question, then the
samples as they grow. `accuracy` drives it, `accuracy_words` tells of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.checks.asks import ASKED_BY, QuestionAsk
from harness.checks.base import Baseline, CheckContext, MissingBaselineError
from harness.checks.questions import QuestionPlan, ask_questions
from harness.checks.references import LEAST_RUNS, RecordedBaseline
from harness.suites import AccuracyParams
from harness.verdict import QuestionOutcome, QuestionRecord, QuestionRole
from harness.verdict.accuracy_gates import Evidence, Reference, count_gates
from harness.verdict.gates import EarlyStop, Noise, flips_limit
from harness.verdict.sample import Sample, pair
from harness.verdict.watch import Stop, StopMode, StopReason, Watch


def first_stage(plan: QuestionPlan, params: AccuracyParams) -> QuestionPlan:
    """What is asked in any case."""
    return plan.part(0, params.questions)


def ask_of(part: QuestionPlan, params: AccuracyParams) -> QuestionAsk:
    """What the baseline is asked: each question once, and `aa` times more to measure its own flips."""
    return QuestionAsk(plan=part, runs=1 + params.aa)


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Fixed before the first question. `alpha` is what all tests of this check may spend together, `test` the
    sequential one where there is a record to test against, `origin` where the dcp=1 answers come from."""

    plan: QuestionPlan
    params: AccuracyParams
    recorded: RecordedBaseline | None
    why_no_record: str
    origin: str | None
    alpha: float
    test: EarlyStop | None

    @property
    def first(self) -> QuestionPlan:
        return first_stage(self.plan, self.params)

    @property
    def rest(self) -> QuestionPlan:
        return self.plan.part(self.params.questions, len(self.plan.items))

    @property
    def alpha_of_gates(self) -> float:
        """A sequential test spends one half of alpha, the gates at the end the other."""
        return self.alpha if self.test is None else self.alpha / 2

    def watch(self, known: Evidence) -> Watch:
        """Counts that can only grow are findings from the limit of all questions on, whatever is still asked.
        `known` is the evidence before the first question."""
        paired = known.baseline is not None
        gates = count_gates(recorded=self.recorded is not None, paired=paired)
        n, alpha = len(self.plan.items), self.alpha_of_gates / max(1, gates)
        finishing = paired and self.recorded is None
        return Watch(
            mode=StopMode(self.params.early_stop),
            test=self.test,
            baseline=known.baseline,
            flips_from=flips_limit(n, known.noise, alpha).fail_from if paired else None,
            unfinished_from=flips_limit(n, known.unfinished_noise, alpha).fail_from if finishing else None,
        )

    @property
    def recorded_noise(self) -> Noise | None:
        """The flips of the record. Of more questions than were recorded, many runs tell no more than the fewest do:
        20 runs of 200 held against 1,319 failed good engines 13 times too often, 5 runs never too often."""
        record = self.recorded
        if record is None:
            return None
        most = max(1, record.questions * LEAST_RUNS // 2)
        if len(self.plan.items) <= record.questions or record.compared <= most:
            return Noise(flips=record.flips, compared=record.compared)
        return Noise(flips=math.ceil(record.flips * most / record.compared), compared=most)


class Asking:
    """The samples as they grow. State: `engine` and `baseline`, the A/A noise seen here, and `watch`."""

    def __init__(self, study: Study, context: CheckContext) -> None:
        self.study = study
        self._context = context
        self._noise = study.recorded_noise
        self._unfinished_noise: Noise | None = None
        self.engine = Sample(records=())
        self.baseline: Sample | None = None
        if context.baseline is not None:
            self._add_baseline(context.baseline, study.first)
        self.watch = study.watch(self.evidence)

    @property
    def evidence(self) -> Evidence:
        record = self.study.recorded
        return Evidence(
            engine=self.engine,
            baseline=self.baseline,
            reference=None if record is None else reference_of(record),
            noise=self._noise,
            unfinished_noise=self._unfinished_noise,
        )

    @property
    def whole(self) -> bool:
        """Whether all of a stage was asked, so that its count is an accuracy."""
        return self.watch.reason is None or self.engine.asked == len(self.study.first.items)

    @property
    def sequential_stop(self) -> Stop | None:
        """The sequential test's word, where it ended the asking."""
        test, reason = self.study.test, self.watch.reason
        if test is None or reason not in (StopReason.BROKEN, StopReason.FINE):
            return None
        return Stop(
            reason=reason, test=test, alpha=self.study.alpha / 2, questions=len(self.study.first.items)
        )

    def ask_first(self) -> None:
        """The first stage, until it is over or the end is known."""
        self._ask(self.study.first, watch=self.watch)

    def ask_rest(self) -> None:
        """All other questions, of the engine and then of its baseline."""
        rest = self.study.rest
        self._ask(rest, watch=None)
        if self._context.ask_more is not None:
            self._add_baseline(self._context.ask_more(ask_of(rest, self.study.params)), rest)

    def _ask(self, part: QuestionPlan, *, watch: Watch | None) -> None:
        def on_batch(records: Sequence[QuestionRecord]) -> bool:
            self._context.log.write(ASKED_BY, QuestionRole.ENGINE, records)
            return watch is not None and watch.look(records)

        self.engine = self.engine.plus(ask_questions(self._context.client, part, on_batch=on_batch))

    def _add_baseline(self, baseline: Baseline, part: QuestionPlan) -> None:
        """Raises MissingBaselineError where a request of the baseline failed: it is nothing to compare with."""
        first, *again = (Sample(records=run) for run in baseline.runs_of(ask_of(part, self.study.params)))
        for sample in (first, *again):
            if failed := sample.of(QuestionOutcome.ERROR):
                raise MissingBaselineError(
                    f"baseline: {len(failed)} of {sample.asked} requests failed; "
                    f"first: question {failed[0].question}: {failed[0].error}"
                )
        self.baseline = first if self.baseline is None else self.baseline.plus(first.records)
        for sample in again:
            paired = pair(sample, first)
            answered = paired.compared + len(paired.unfinished)
            self._noise = _more_noise(self._noise, flips=len(paired.flips), compared=paired.compared)
            self._unfinished_noise = _more_noise(
                self._unfinished_noise, flips=len(paired.unfinished), compared=answered
            )


def reference_of(record: RecordedBaseline) -> Reference:
    """What the gates need of a record."""
    return Reference(
        correct=record.correct,
        scored=record.of,
        asked=record.of + record.invalid,
        told=record.told,
        runs=record.runs,
        questions=record.questions,
    )


def _more_noise(noise: Noise | None, *, flips: int, compared: int) -> Noise | None:
    before = (0, 0) if noise is None else (noise.flips, noise.compared)
    total = before[1] + compared
    return Noise(flips=before[0] + flips, compared=total) if total else None
