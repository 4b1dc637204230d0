"""What one accuracy check is going to do, and the asking of it: the plan before the first question, then the
samples as they grow. `accuracy` drives it, `accuracy_words` tells of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.checks.asks import ASKED_BY, QuestionAsk
from harness.checks.base import Baseline, CheckContext, MissingBaselineError
from harness.checks.questions import QuestionPlan, ask_questions
from harness.checks.references import RecordedBaseline
from harness.suites import AccuracyParams
from harness.verdict import QuestionOutcome, QuestionRecord, QuestionRole
from harness.verdict.accuracy_gates import Evidence, Reference, count_gates
from harness.verdict.gates import EarlyStop, Noise, flips_limit
from harness.verdict.sample import Sample, pair
from harness.verdict.watch import Stop, StopMode, StopReason, Watch


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
        return self.plan.part(0, self.params.questions)

    @property
    def rest(self) -> QuestionPlan:
        return self.plan.part(self.params.questions, len(self.plan.items))

    @property
    def alpha_of_gates(self) -> float:
        """A sequential test spends one half of alpha, the gates at the end the other."""
        return self.alpha if self.test is None else self.alpha / 2

    def ask_of(self, part: QuestionPlan) -> QuestionAsk:
        """What the baseline is asked: each question once, and `aa` times more to measure its own flips."""
        return QuestionAsk(plan=part, runs=1 + self.params.aa)

    def watch(self, baseline: Sample | None) -> Watch:
        """Counts that can only grow are findings from the limit of all questions on, whatever is still asked."""
        gates = count_gates(recorded=self.recorded is not None, paired=baseline is not None)
        n, alpha = len(self.plan.items), self.alpha_of_gates / max(1, gates)
        paired = baseline is not None
        return Watch(
            mode=StopMode(self.params.early_stop),
            test=self.test,
            baseline=baseline,
            flips_from=flips_limit(n, self.recorded_noise, alpha).fail_from if paired else None,
            unfinished_from=flips_limit(n, None, alpha).fail_from if paired and not self.recorded else None,
        )

    @property
    def recorded_noise(self) -> Noise | None:
        record = self.recorded
        return None if record is None else Noise(flips=record.flips, compared=record.compared)


class Asking:
    """The samples as they grow. State: `engine` and `baseline`, the A/A flips seen here, and `watch`."""

    def __init__(self, study: Study, context: CheckContext) -> None:
        self.study = study
        self._context = context
        self._noise = study.recorded_noise
        self.engine = Sample(records=())
        self.baseline: Sample | None = None
        if context.baseline is not None:
            self._add_baseline(context.baseline, study.first)
        self.watch = study.watch(self.baseline)

    @property
    def evidence(self) -> Evidence:
        record = self.study.recorded
        return Evidence(
            engine=self.engine,
            baseline=self.baseline,
            reference=None if record is None else _reference(record, n=self.engine.asked),
            noise=self._noise,
        )

    @property
    def sequential_stop(self) -> Stop | None:
        """The sequential test's word, where it ended the asking."""
        test, reason = self.study.test, self.watch.reason
        if test is None or reason not in (StopReason.BROKEN, StopReason.FINE):
            return None
        return Stop(reason=reason, test=test, alpha=self.study.alpha / 2)

    def ask_first(self) -> None:
        """The first stage, until it is over or the end is known."""
        self._ask(self.study.first, watch=self.watch)

    def ask_rest(self) -> None:
        """All other questions, of the engine and then of its baseline."""
        rest = self.study.rest
        self._ask(rest, watch=None)
        if self._context.ask_more is not None:
            self._add_baseline(self._context.ask_more(self.study.ask_of(rest)), rest)

    def _ask(self, part: QuestionPlan, *, watch: Watch | None) -> None:
        def on_batch(records: Sequence[QuestionRecord]) -> bool:
            self._context.log.write(ASKED_BY, QuestionRole.ENGINE, records)
            return watch is not None and watch.look(records)

        self.engine = self.engine.plus(ask_questions(self._context.client, part, on_batch=on_batch))

    def _add_baseline(self, baseline: Baseline, part: QuestionPlan) -> None:
        """Raises MissingBaselineError where a request of the baseline failed: it is nothing to compare with."""
        first, *again = (Sample(records=run) for run in baseline.runs_of(self.study.ask_of(part)))
        for sample in (first, *again):
            if failed := sample.of(QuestionOutcome.ERROR):
                raise MissingBaselineError(
                    f"baseline: {len(failed)} of {sample.asked} requests failed; "
                    f"first: question {failed[0].question}: {failed[0].error}"
                )
        self.baseline = first if self.baseline is None else self.baseline.plus(first.records)
        for sample in again:
            paired = pair(sample, first)
            self._noise = _more_noise(self._noise, flips=len(paired.flips), compared=paired.compared)


def _reference(record: RecordedBaseline, *, n: int) -> Reference:
    correct, scored = weight_of(record, n=n)
    share = scored / record.of
    return Reference(
        correct=correct,
        scored=scored,
        asked=round((record.of + record.invalid) * share),
        told=record.told,
    )


def weight_of(record: RecordedBaseline, *, n: int) -> tuple[int, int]:
    """(right, of) that a record may weigh where `n` questions are asked.

    Runs of a deterministic engine are copies of one another. Over the questions that were recorded that does no
    harm; of more questions they tell no more than one run does (5 runs of 200 held against 1,319 failed good
    engines thirty times too often).
    """
    if n <= record.questions:
        return record.correct, record.of
    return record.correct // record.runs, record.of // record.runs


def _more_noise(noise: Noise | None, *, flips: int, compared: int) -> Noise | None:
    before = (0, 0) if noise is None else (noise.flips, noise.compared)
    total = before[1] + compared
    return Noise(flips=before[0] + flips, compared=total) if total else None
