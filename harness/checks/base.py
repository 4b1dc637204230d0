"""What a check is: a name, the requests it wants answered by the dcp=1 baseline, and a judgement.

The runner collects `baseline_groups` of every check of a job, answers them on the baseline engine, stops that,
launches the engine under test and calls `run`. A check raises only for faults of the engine or of time; what
it finds wrong it returns, with figures for the report.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Protocol

from harness.engines import Answer, EngineClient, GenerateRequest, ServerInfo
from harness.errors import HarnessError
from harness.verdict import CheckOutcome

# Byte tokens: every builtin model's vocabulary begins with them, and real models hold at least as many.
PROMPT_VOCABULARY = 256

RequestGroup = tuple[GenerateRequest, ...]


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
    """What the dcp=1 engine said: its capacity and its answers, by the group of requests as it was sent.

    `origin` is told in reports: how the baseline came about and what it cost.
    """

    info: ServerInfo
    answers: dict[RequestGroup, tuple[Answer, ...]]
    origin: str

    def of(self, group: RequestGroup) -> tuple[Answer, ...]:
        """Raises MissingBaselineError where the group was not asked."""
        if group not in self.answers:
            raise MissingBaselineError(
                f"the dcp=1 baseline was not asked for this group of {len(group)} requests"
            )
        return self.answers[group]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckContext:
    """What a check works with; `baseline` is None where nothing was declared or given to compare with."""

    client: EngineClient
    baseline: Baseline | None

    def need_baseline(self) -> Baseline:
        if self.baseline is None:
            raise MissingBaselineError(
                "no dcp=1 baseline to compare with: declare `baseline: {parallel: {dcp: 1}}`, or give --baseline-url"
            )
        return self.baseline


class Check(Protocol):
    """One module of this package. `params` is the model of the same name in `suites.check_params`."""

    needs_baseline: bool

    def baseline_groups(self, params: Any) -> list[RequestGroup]:
        """Requests to ask of the baseline; each group is sent as one batch."""
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
