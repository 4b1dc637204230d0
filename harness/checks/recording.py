"""Measuring a baseline: the same questions asked again and again of one healthy engine, made into a record.

`harness baseline record` calls `measure`, then `as_record`. The prefix cache is emptied before each run, so that
every run computes what it answers. Failure rule: one failed request and nothing is recorded; a count with holes
would be held against every later run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from harness.checks.questions import QuestionPlan, ask_questions, empty_cache
from harness.checks.references import Configuration, RecordedBaseline
from harness.engines import EngineClient
from harness.errors import EngineError
from harness.verdict import QuestionOutcome, QuestionRecord
from harness.verdict.gates import recorded_noise
from harness.verdict.sample import Sample

# Called with the run's number and each finished batch of it.
Progress = Callable[[int, Sequence[QuestionRecord]], None]


def measure(
    client: EngineClient, plan: QuestionPlan, *, runs: int, seconds: float, progress: Progress
) -> list[Sample]:
    """Ask the whole plan `runs` times, each within `seconds`.

    Raises EngineError for a failed request, as soon as its batch is over, EngineDiedError and DeadlineError.
    """
    return [
        _one_run(client, plan, number=number, seconds=seconds, progress=progress)
        for number in range(1, runs + 1)
    ]


def _one_run(
    client: EngineClient, plan: QuestionPlan, *, number: int, seconds: float, progress: Progress
) -> Sample:
    def on_batch(records: Sequence[QuestionRecord]) -> bool:
        progress(number, records)
        return any(record.outcome is QuestionOutcome.ERROR for record in records)

    with client.deadline(f"baseline run {number}", seconds):
        empty_cache(client)
        sample = Sample(records=tuple(ask_questions(client, plan, on_batch=on_batch)))
    if failed := sample.of(QuestionOutcome.ERROR):
        raise EngineError(
            f"run {number}: the request of question {failed[0].question} failed ({failed[0].error}); "
            "nothing was recorded"
        )
    return sample


def as_record(
    samples: Sequence[Sample], configuration: Configuration, *, commit: str, note: str | None = None
) -> RecordedBaseline:
    """What the runs say together. Raises EngineError where no question was scored twice."""
    noise = recorded_noise(_tallies(samples))
    if noise is None:
        raise EngineError(
            f"none of {samples[0].asked:,} answers could be scored (cut off, or without a number); "
            "nothing was recorded"
        )
    return RecordedBaseline.model_validate(
        {
            "task": configuration.task,
            "model": configuration.model,
            "fingerprint": configuration.fingerprint,
            "runs": len(samples),
            "questions": samples[0].asked,
            "correct": sum(sample.correct for sample in samples),
            "of": sum(sample.scored for sample in samples),
            "invalid": sum(sample.unfinished for sample in samples),
            "flips": noise.flips,
            "compared": noise.compared,
            "commit": commit,
            "date": datetime.now(UTC).date().isoformat(),
            "note": note,
            "configuration": configuration,
        }
    )


def _tallies(samples: Sequence[Sample]) -> list[tuple[int, int]]:
    """How often each question was answered right and wrong in all runs."""
    told: defaultdict[int, Counter[QuestionOutcome]] = defaultdict(Counter)
    for record in (record for sample in samples for record in sample.records):
        told[record.question][record.outcome] += 1
    return [(counts[QuestionOutcome.CORRECT], counts[QuestionOutcome.WRONG]) for counts in told.values()]
