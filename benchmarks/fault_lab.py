"""Measures one planted fault at a time for `fault_table.py`: two engines with it, against dcp=1 without.

Phases: `ask_dcp1` once, then `measure` for each fault. The trained model answers sums under the arguments
of the accuracy suite; the random one goes through the parity suite's own checks. Failure rule: an engine that
dies ends the benchmark, since no fault is meant to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from harness.checks import CHECKS, Baseline, CheckContext
from harness.checks.asks import ask_engine
from harness.checks.compare import compare, worst
from harness.checks.launches import to_launch
from harness.checks.questions import QuestionPlan, ask_questions, make_plan
from harness.engines import Answer, EngineClient, GenerateRequest, ReferenceEngine
from harness.refengine.served_model import resolve_model
from harness.refengine.tokenizer import EOS_ID
from harness.suites import AccuracyParams, CheckParams, Job, ProfileName, expand, load_suite
from harness.verdict import CheckOutcome
from harness.verdict.accuracy import Demand, judge_accuracy
from harness.verdict.accuracy_gates import Evidence, Reference
from harness.verdict.gates import Noise
from harness.verdict.sample import Sample, pair

SUITES = Path(__file__).parents[1] / "suites"
HEALTHY = "none"
ALPHA = 1e-3
# The longest worked answer of the sums takes 69 tokens; what writes more is cut off, and told as that.
ANSWER_TOKENS = 80
# Prompts whose answers' log-probabilities are compared on the trained model, and how many tokens of each.
SCORED_PROMPTS, SCORED_TOKENS = 32, 48
# Of the parity suite, in its order: `active` asks for a first page, which others then do not get.
JUDGED = ("active", "parity", "batch", "rows")
# What one engine may take to start, and for all that it is asked, on a machine that has other things to do.
PATIENCE_S = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What one engine said on the trained model. `few_shot` has examples in front of each question."""

    zero_shot: Sample
    few_shot: Sample
    scored: tuple[Answer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table: figures against dcp=1, gates and checks that turned red."""

    fault: str
    poison: float | None
    right: int
    few_shot_right: int
    same_text: int
    asked: int
    few_shot_asked: int
    sums_gap: float
    parity_gap: float
    batch_gap: float
    rows_wrong: int
    gates: tuple[str, ...]
    checks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dcp1:
    """What everything is compared with. `noise` is how many answers flip when the same is asked again."""

    trained: Trained
    noise: Noise
    recorded: Reference
    random: Baseline

    def headline(self) -> str:
        """What there is to compare with, for people."""
        trained, told = self.trained, self.recorded
        return (
            f"Measured against dcp=1 of tp {self.random.info.tp_size}: {trained.zero_shot.correct} of "
            f"{trained.zero_shot.asked} right, {trained.few_shot.correct} of {trained.few_shot.asked} at 5-shot, "
            f"{told.correct} of {told.asked} recorded; asked again, {self.noise.flips} of {self.noise.compared} "
            "answers flip"
        )


class Lab:
    """The two engines of one layout, and what they are asked."""

    def __init__(
        self, layout: str, *, model: str, questions: int, few_shot: int, recorded: int, logs: Path
    ) -> None:
        self._logs = logs
        self._sums = _job(f"dcp/gsm8k_{layout}")
        self._random = _job(f"dcp/parity_{layout}")
        self._model = model
        self._zero_shot = _plan(questions, shots=0)
        self._few_shot = _plan(few_shot, shots=5)
        self._recorded_plan = _plan(recorded, shots=0)
        encode = resolve_model(model).tokenizer.encode
        self._scored = [
            GenerateRequest(input_ids=tuple(encode(item.prompt)), max_new_tokens=SCORED_TOKENS)
            for item in self._zero_shot.items[:SCORED_PROMPTS]
        ]
        self._judged: dict[str, CheckParams] = {
            spec.name: spec.params for spec in self._random.checks if spec.name in JUDGED
        }

    def ask_dcp1(self) -> Dcp1:
        """Everything that the engine with a fault is compared with."""
        with self._trained(dcp1=True) as client:
            trained = self._ask(client)
            again = Sample(records=tuple(ask_questions(client, self._zero_shot)))
            recorded = Sample(records=tuple(ask_questions(client, self._recorded_plan)))
        twice = pair(again, trained.zero_shot)
        with self._launched(self._random, dcp1=True) as client:
            asks = [a for name, params in self._judged.items() for a in CHECKS[name].baseline_asks(params)]
            answers = {ask: ask_engine(client, ask) for ask in asks}
            random = Baseline(info=client.server_info(), answers=answers, origin="asked first")
        return Dcp1(
            trained=trained,
            noise=Noise(flips=len(twice.flips), compared=twice.compared),
            recorded=Reference(
                correct=recorded.correct, scored=recorded.scored, asked=recorded.asked, told="dcp=1"
            ),
            random=random,
        )

    def measure(self, fault: str, *, poison: float | None, dcp1: Dcp1) -> Row:
        """Launch both engines with the fault, and judge what they do."""
        with self._trained(fault=fault, poison=poison) as client:
            found = self._ask(client)
        with self._launched(self._random, fault=fault, poison=poison) as client:
            context = CheckContext(client=client, baseline=dcp1.random)
            results = {name: CHECKS[name].run(params, context) for name, params in self._judged.items()}
        return Row(
            fault=fault,
            poison=poison,
            right=found.zero_shot.correct,
            asked=found.zero_shot.asked,
            few_shot_right=found.few_shot.correct,
            few_shot_asked=found.few_shot.asked,
            same_text=_same_text(found.zero_shot, dcp1.trained.zero_shot),
            sums_gap=self._gap(found.scored, dcp1.trained.scored),
            parity_gap=results["parity"].figures["max_logprob_gap"],
            batch_gap=results["batch"].figures["max_logprob_gap"],
            rows_wrong=len(results["rows"].figures.get("faults", ())),
            gates=_red_gates(found.zero_shot, dcp1),
            checks=tuple(n for n, result in results.items() if result.outcome is CheckOutcome.FAILED),
        )

    def _ask(self, client: EngineClient) -> Trained:
        return Trained(
            zero_shot=Sample(records=tuple(ask_questions(client, self._zero_shot))),
            few_shot=Sample(records=tuple(ask_questions(client, self._few_shot))),
            scored=tuple(client.generate_batch(self._scored)),
        )

    def _gap(self, answers: Sequence[Answer], baseline: Sequence[Answer]) -> float:
        """The largest difference of a log-probability, up to the end of dcp=1's answer or the first other token."""
        places = []
        for answer, base, request in zip(answers, baseline, self._scored, strict=True):
            end = base.tokens.index(EOS_ID) + 1 if EOS_ID in base.tokens else len(base.tokens)
            places += compare(answer, base, prompt=request.input_ids)[:end]
        peak = worst(places)
        assert peak is not None, "every answer has a first token"
        return peak.gap

    def _trained(
        self, *, fault: str = HEALTHY, poison: float | None = None, dcp1: bool = False
    ) -> AbstractContextManager[EngineClient]:
        return self._launched(self._sums, fault=fault, poison=poison, dcp1=dcp1, model=self._model)

    @contextmanager
    def _launched(
        self,
        job: Job,
        *,
        fault: str = HEALTHY,
        poison: float | None = None,
        dcp1: bool = False,
        model: str | None = None,
    ) -> Iterator[EngineClient]:
        spec = job.baseline if dcp1 else job.engine
        assert spec is not None, "the suites of this table declare both"
        launch = to_launch(
            spec if model is None else spec.model_copy(update={"model": model}),
            args={} if poison is None else {"poison": poison},
            faults=() if fault == HEALTHY else (fault,),
        )
        engine = ReferenceEngine.launch(
            replace(launch, launch_timeout_s=PATIENCE_S), log=self._logs / "engine.log"
        )
        try:
            with engine.client.deadline("fault table", PATIENCE_S):
                yield engine.client
        finally:
            engine.stop()


def _job(suite: str) -> Job:
    (job,) = expand(load_suite(SUITES / f"{suite}.yaml", root=SUITES), ProfileName.CPU)
    return job


def _plan(questions: int, *, shots: int) -> QuestionPlan:
    return make_plan(
        AccuracyParams(task="sums", questions=questions, shots=shots, max_new_tokens=ANSWER_TOKENS)
    )


def _same_text(sample: Sample, baseline: Sample) -> int:
    pairs = zip(sample.records, baseline.records, strict=True)
    return sum(ours.text == theirs.text for ours, theirs in pairs)


def _red_gates(sample: Sample, dcp1: Dcp1) -> tuple[str, ...]:
    evidence = Evidence(
        engine=sample, baseline=dcp1.trained.zero_shot, reference=dcp1.recorded, noise=dcp1.noise
    )
    judged = judge_accuracy(evidence, Demand(alpha=ALPHA, effect=1.0))
    return tuple(gate.name.value for gate in judged.gates if gate.rejected)
