"""Running one check on engines that somebody else started: the work behind `harness eval`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rich.console import Console
from rich.status import Status

from harness.checks import Ask, Baseline, BaselineUse, Check, CheckContext, CheckResult, MissingBaselineError
from harness.checks.asks import ask_engine
from harness.checks.question_log import QuestionLog
from harness.checks.reference_file import baselines_path, load_baselines
from harness.checks.session import baseline_error, error_result
from harness.engines import EngineClient
from harness.errors import DeadlineError, EngineError, UsageError
from harness.suites import CheckParams
from harness.verdict import QuestionRecord, QuestionRole


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """What a check is run on: the engine under test, the same at dcp 1 if there is one, and what is known of it."""

    url: str
    baseline_url: str | None = None
    model: str | None = None
    baselines: Path | None = None

    def check(self, check: str, use: BaselineUse) -> None:
        """Raises UsageError for addresses that are none, and for a missing one."""
        if use is BaselineUse.REQUIRED and self.baseline_url is None:
            raise UsageError(f"check {check} compares with an engine at dcp 1; give it with --baseline-url")
        if self.baselines is not None and not self.baselines.is_file():
            raise UsageError(f"--baselines {self.baselines} is no file")
        for option, given in (("--url", self.url), ("--baseline-url", self.baseline_url)):
            if given is not None and not is_address(given):
                raise UsageError(f"{option} is {given!r}; allowed: an address such as http://127.0.0.1:30000")


def is_address(given: str) -> bool:
    """Whether an engine may be reached there."""
    try:
        parts = urlsplit(given)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port or an IPv6 address that is none
        return False


class _ProgressLog(QuestionLog):
    """Shows how many questions were answered; nothing is written."""

    def __init__(self, status: Status, told: str) -> None:
        super().__init__(None)
        self._status = status
        self._told = told
        self._answered = 0

    def write(self, check: str, role: QuestionRole, records: Sequence[QuestionRecord]) -> None:
        if role is QuestionRole.ENGINE:
            self._answered += len(records)
            self._status.update(f"{self._told}: {self._answered} questions answered")


def evaluate_check(
    name: str, check: Check, params: CheckParams, *, engines: Engines, seconds: float
) -> CheckResult:
    """The result; an engine that fails or a deadline that passes is an `error` result, as in a suite's job."""
    told = f"{name} on {engines.url}"
    with Console(stderr=True).status(told) as status, closing(EngineClient(engines.url)) as client:
        try:
            with client.deadline(f"check {name}", seconds):
                context = CheckContext(
                    client=client,
                    baseline=None,
                    model=engines.model,
                    references=load_baselines(baselines_path(engines.baselines)) if params.gated else (),
                    log=_ProgressLog(status, told),
                )
                if engines.baseline_url is None:
                    return check.run(params, context)
                asks = check.baseline_asks(params) if check.baseline_use is not BaselineUse.NEVER else ()
                return check.run(params, _with_baseline(context, engines.baseline_url, asks, seconds=seconds))
        except (EngineError, DeadlineError, MissingBaselineError) as error:
            return error_result(error)


def _with_baseline(context: CheckContext, url: str, asks: Sequence[Ask], *, seconds: float) -> CheckContext:
    """The context with a baseline that was asked now, and can be asked more: it runs beside the other engine."""

    def ask(*more: Ask) -> Baseline:
        try:
            with closing(EngineClient(url)) as client, client.deadline("baseline", seconds):
                info = client.self_description()
                if info is not None and info.dcp_size != 1:
                    raise UsageError(
                        f"--baseline-url {url} runs at dcp {info.dcp_size}; a baseline runs at dcp 1"
                    )
                answers: dict[Ask, Any] = {one: ask_engine(client, one) for one in more}
        except EngineError as error:
            raise baseline_error(error) from error
        proven = "" if info is not None else ", which does not say at which dcp it runs"
        return Baseline(info=info, answers=answers, origin=f"asked now at {url}{proven}")

    return replace(context, baseline=ask(*asks), ask_more=ask)
