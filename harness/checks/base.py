"""What a check is: a name, what it wants answered by the dcp=1 baseline, and a judgement.

The runner collects `baseline_asks` of every check of a job, has them answered by the baseline engine, stops
that, launches the engine under test and calls `run`. A check raises only for faults of the engine or of time; what
it finds wrong it returns, with figures for the report.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from harness.checks.asks import Answers, Ask, QuestionAsk, QuestionRuns, RequestGroup
from harness.checks.question_log import QuestionLog
from harness.checks.references import RecordedBaseline
from harness.engines import Answer, EngineClient, PDPair, ServerInfo
from harness.errors import HarnessError
from harness.verdict import CheckOutcome

# Byte tokens: every builtin model's vocabulary begins with them, and real models hold at least as many.
PROMPT_VOCABULARY = 256


class BaselineUse(StrEnum):
    """Whether a check compares with dcp=1."""

    NEVER = "never"
    OPTIONAL = "optional"  # it has something else to go by as well
    REQUIRED = "required"


class MissingBaselineError(HarnessError):
    """A check compares with dcp=1 and there is nothing to compare with: never a pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """`figures` are JSON values; the summary shows those that the check names in its message."""

    outcome: CheckOutcome
    message: str
    figures: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What the dcp=1 engine said: of itself (None: nothing that can be used), and its answers by what was asked.

    `origin` is told in reports: how the baseline came about and what it cost.
    """

    info: ServerInfo | None
    answers: dict[Ask, Answers]
    origin: str

    def of(self, group: RequestGroup) -> tuple[Answer, ...]:
        """Raises MissingBaselineError where the group was not asked."""
        if group not in self.answers:
            raise MissingBaselineError(
                f"the dcp=1 baseline was not asked for this group of {len(group)} requests"
            )
        return self.answers[group]  # type: ignore[return-value]  # a group has answers of requests

    def runs_of(self, ask: QuestionAsk) -> QuestionRuns:
        """Raises MissingBaselineError where the plan was not asked."""
        if ask not in self.answers:
            raise MissingBaselineError(
                f"the dcp=1 baseline was not asked these {len(ask.plan.items)} questions"
            )
        return self.answers[ask]  # type: ignore[return-value]  # a plan has records of questions


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckContext:
    """What a check works with; `baseline` is None where nothing was declared or given to compare with.

    `model` is the engine's model as the suite names it (None: ask the engine). `references` are the recorded
    baselines, `log` takes what became of each question, `gated_checks` counts the checks of this run that share
    one allowance of false alarms. `ask_more` has the baseline answer what was not asked before; the engine under
    test may be gone after that, for the two may share their devices. `relaunched` says that this has happened, or
    that another check's launch came between: what earlier checks left in the engine cannot be seen any more. `pair`
    is what a check may kill and start again: one that this job has launched.
    """

    client: EngineClient
    baseline: Baseline | None
    model: str | None = None
    references: tuple[RecordedBaseline, ...] = ()
    log: QuestionLog = field(default_factory=lambda: QuestionLog(None))
    gated_checks: int = 1
    ask_more: Callable[[Ask], Baseline] | None = None
    relaunched: bool = False
    pair: PDPair | None = None

    def need_baseline(self) -> Baseline:
        if self.baseline is None:
            raise MissingBaselineError(
                "no dcp=1 baseline to compare with: declare `baseline: {parallel: {dcp: 1}}`, or give --baseline-url"
            )
        return self.baseline


class Check(Protocol):
    """One module of this package. `params` is the model of the same name in `suites.check_params`."""

    baseline_use: BaselineUse

    def baseline_asks(self, params: Any) -> Sequence[Ask]:
        """What to ask of the baseline; each group of requests is sent as one batch."""
        ...

    def run(self, params: Any, context: CheckContext) -> CheckResult:
        """Judge the engine."""
        ...


def passed(message: str, **figures: Any) -> CheckResult:
    return CheckResult(outcome=CheckOutcome.PASSED, message=message, figures=figures)


def failed(message: str, **figures: Any) -> CheckResult:
    return CheckResult(outcome=CheckOutcome.FAILED, message=message, figures=figures)


def unproven(message: str, **figures: Any) -> CheckResult:
    return CheckResult(outcome=CheckOutcome.UNPROVEN, message=message, figures=figures)


def random_prompt(length: int, *, seed: int) -> tuple[int, ...]:
    """`length` token ids, the same for the same seed on every machine."""
    generator = random.Random(f"prompt:{seed}:{length}")
    return tuple(generator.randrange(PROMPT_VOCABULARY) for _ in range(length))
