"""Whom `harness baseline record` asks, and what: the accuracy checks of suites, or one running engine.

Failure rule: whatever could not be a healthy dcp=1 engine (DCP, planted faults) is refused before it is asked
anything.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness.checks.launches import as_check_wants, to_launch
from harness.cli.evaluation import is_address
from harness.engines import LAUNCHABLE, EngineClient, LaunchSpec, ReferenceEngine
from harness.errors import Mark, RequestRefusedError, UsageError
from harness.suites import AccuracyParams, Job, MarkedDict, describe

# As many as a check's `questions` may be, which is more than any task has.
ALL_QUESTIONS = 1_000_000
# What an engine without `/server_info` answers.
NOT_FOUND = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One configuration to measure: an engine to launch, or one that runs at `target`."""

    name: str
    params: AccuracyParams
    target: LaunchSpec | str
    model: str | None = None


def sources_of(jobs: Sequence[Job], *, questions: int | None) -> tuple[list[Source], list[str]]:
    """The accuracy checks of these jobs at dcp 1, and why others cannot be measured here, as `job: why`.

    Raises UsageError where none can.
    """
    scored = [job for job in jobs if accuracy_params(job)]
    if not scored:
        raise UsageError(f"nothing to record: no accuracy check in {', '.join(job.id for job in jobs)}")
    others = [f"{job.id}: {why}" for job in scored if (why := _why_not(job))]
    sources = [source for job in scored if not _why_not(job) for source in _sources(job, questions)]
    if not sources:
        raise UsageError(f"nothing to record: {'; '.join(others)}")
    return sources, others


def source_at(url: str, given: Mapping[str, Any], *, model: str | None, questions: int | None) -> Source:
    """A running engine; `given` are parameters of the check. Raises UsageError naming options that are wrong."""
    if not is_address(url):
        raise UsageError(f"--url is {url!r}; allowed: an address such as http://127.0.0.1:30000")
    if "task" not in given:
        raise UsageError("--url needs --task: sums or gsm8k")
    params = _params({**given, **_only(ALL_QUESTIONS if questions is None else questions)})
    return Source(name=url, params=params, target=url, model=model)


def accuracy_params(job: Job) -> list[AccuracyParams]:
    return [spec.params for spec in job.checks if isinstance(spec.params, AccuracyParams)]


def baseline_launch(job: Job) -> LaunchSpec | None:
    """The job's baseline, or its engine where that has no DCP; None where the job launches neither."""
    if job.baseline is not None:
        return to_launch(job.baseline)
    launch = None if job.engine is None else to_launch(job.engine)
    return launch if launch is not None and launch.parallel.dcp_size == 1 else None


def _why_not(job: Job) -> str | None:
    launch = baseline_launch(job)
    if launch is None:
        return "declares no engine at dcp 1"
    return None if launch.kind in LAUNCHABLE else f"this release cannot launch {launch.kind} (give its --url)"


def _sources(job: Job, questions: int | None) -> list[Source]:
    launch = baseline_launch(job)
    assert launch is not None, "refused by _why_not"
    less = {} if questions is None else _only(questions)
    return [
        Source(
            name=job.id,
            params=_params(params.model_dump() | less),
            target=as_check_wants(launch, params),
        )
        for params in accuracy_params(job)
    ]


def _only(questions: int) -> dict[str, Any]:
    return {"questions": questions, "escalate": None}


def _params(values: Mapping[str, Any]) -> AccuracyParams:
    try:
        return AccuracyParams.model_validate(values)
    except ValidationError as error:
        told = describe(error, MarkedDict(Mark(Path("--url"), 1, 1)), AccuracyParams)
        raise UsageError("; ".join(f"--{each.replace('_', '-')}" for each in told)) from None


@contextmanager
def running(source: Source) -> Iterator[EngineClient]:
    """A client of the source's engine, which is launched and stopped where it does not run already."""
    if isinstance(source.target, str):
        with closing(EngineClient(source.target)) as client:
            yield client
        return
    with tempfile.TemporaryDirectory(prefix="harness-") as folder:
        engine = ReferenceEngine.launch(source.target, log=Path(folder) / "baseline.log")
        try:
            yield engine.client
        finally:
            engine.stop()


def told_by(client: EngineClient) -> Mapping[str, Any]:
    """What the engine tells of itself; nothing, where it has no `/server_info`. Raises UsageError for an engine
    that is no baseline."""
    try:
        info = client.server_info()
    except RequestRefusedError as error:
        if error.status != NOT_FOUND:
            raise
        return {}
    if info.dcp_size != 1:
        raise UsageError(f"{client.url} runs at dcp {info.dcp_size}; a baseline runs at dcp 1")
    if faults := info.raw.get("faults"):
        raise UsageError(f"{client.url} has {', '.join(faults)} planted; a baseline is healthy")
    return info.raw
