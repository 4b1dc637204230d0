"""Recorded baselines: how accurate a healthy engine is on a task, and exactly for which configuration.

`harness baseline record` makes records, the `accuracy` check looks one up. A record is bound to its
fingerprint: the SHA-256 of everything that decides the answers of a healthy engine (the task and how it is
asked, the model and its number formats). The layout (tp, dcp, backends, pages) and how many questions are asked
are left out on purpose: a layout must not change accuracy, and one record serves 200 questions and 1,319.
Failure rule: a record of another fingerprint is never used; messages name the nearest one and what differs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator
from pydantic.types import Strict

from harness.checks.questions import QuestionPlan
from harness.checks.tasks.answers import ANSWER_RULE
from harness.checks.tasks.base import LABELS
from harness.checks.tasks.prompts import PROMPT_SHAPE
from harness.errors import EngineError
from harness.suites import AccuracyParams
from harness.suites.fields import Count, Day, Index, Model, Text

# Fewer runs say too little about how much a healthy engine varies from run to run.
LEAST_RUNS = 5

# Engine arguments that change numbers, and with them answers, whatever the layout; `/server_info` of the
# reference engine and of SGLang tells them under these names.
NUMBER_FORMATS = ("dtype", "kv_cache_dtype", "quantization")


def _check_sha256(value: str) -> str:
    if len(value) != sha256().digest_size * 2 or not set(value) <= set("0123456789abcdef"):
        raise ValueError(f"{value!r:.80} is no SHA-256; allowed: 64 hexadecimal digits")
    return value


# A git commit, written out.
_COMMIT_DIGITS = 40
Sha256 = Annotated[str, Strict(), AfterValidator(_check_sha256)]


class Configuration(Model):
    """What a fingerprint is made of, readable. `asked` tells the prompts' shape, the shots, and the answer rule."""

    task: Text
    task_digest: Sha256
    shots: Annotated[int, Strict(), Field(ge=0)]
    asked: Text
    stop: tuple[Text, ...]
    max_new_tokens: Count
    model: Text
    model_sha256: Sha256 | None = None
    formats: dict[str, Text] = Field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """Equal for equal configurations only, on every machine."""
        return sha256(json.dumps(self.model_dump(), sort_keys=True).encode()).hexdigest()


class RecordedBaseline(Model):
    """`correct` of `of` scored answers over all `runs`; `invalid` answers were cut off or held no number.

    `flips` are the rarer outcomes of each question and `compared` half of the answers, as if all answers had been
    compared in pairs: the noise of this configuration against itself.
    """

    task: Text
    model: Text
    fingerprint: Sha256
    runs: Annotated[int, Strict(), Field(ge=LEAST_RUNS)]
    questions: Count
    correct: Index
    of: Count
    invalid: Index = 0
    flips: Index
    compared: Count
    commit: Text
    date: Day
    note: Text | None = None
    configuration: Configuration

    @model_validator(mode="after")
    def _check(self) -> Self:
        """A record that somebody changed by hand no longer speaks of what was measured."""
        if self.configuration.fingerprint != self.fingerprint:
            raise ValueError(
                "'fingerprint' is not that of 'configuration'; allowed: records as they were written"
            )
        if (self.configuration.task, self.configuration.model) != (self.task, self.model):
            raise ValueError("'task' and 'model' are not those of 'configuration'")
        if self.of + self.invalid != self.runs * self.questions:
            raise ValueError("'of' and 'invalid' together are not 'runs' times 'questions'")
        if self.correct > self.of or self.flips > self.compared:
            raise ValueError("more is counted than there was")
        return self

    @property
    def label(self) -> str:
        """What reports call the task."""
        return LABELS.get(self.task, self.task)

    @property
    def accuracy(self) -> float:
        return self.correct / self.of

    @property
    def told(self) -> str:
        """The provenance that every report of a gate ends with."""
        return f"{self.correct:,} of {self.of:,} in {self.runs} runs, {self.date}, commit {self.short_commit}"

    @property
    def short_commit(self) -> str:
        """Enough of a hash to find it, `+dirty` kept; what is no hash stays whole."""
        digits, dirty, _ = self.commit.partition("+dirty")
        return (digits[:12] if len(digits) == _COMMIT_DIGITS else digits) + dirty


def configuration(plan: QuestionPlan, told: Mapping[str, Any], *, model: str | None = None) -> Configuration:
    """Of the questions in `plan`, asked of an engine that tells this in its `/server_info`.

    `model` is for engines that call their model otherwise than suites do. Where an engine tells the SHA-256 of
    its checkpoint, the folder of that is no part of it. Raises EngineError where no model is known, or rubbish is
    told.
    """
    named = model or told.get("model") or told.get("model_path")
    if not named:
        raise EngineError("/server_info names no model, so no record can be compared with it: give --model")
    digest = told.get("model_sha256")
    formats = {name: str(told[name]) for name in NUMBER_FORMATS if told.get(name) is not None}
    try:
        return Configuration(
            task=plan.task,
            task_digest=plan.digest,
            shots=plan.shots,
            asked=plan.asked,
            stop=plan.stop,
            max_new_tokens=plan.max_new_tokens,
            model=model_name(named) if digest else named,
            model_sha256=digest,
            formats=formats,
        )
    except ValidationError as error:
        wrong = error.errors()[0]
        place = ".".join(map(str, wrong["loc"]))
        raise EngineError(f"/server_info tells a {place} that is none: {wrong['msg']}") from error


def model_name(model: str) -> str:
    """A checkpoint by its file's name; every other model as it is."""
    return PurePosixPath(model).name if model.endswith(".safetensors") else model


def may_serve(recorded: Configuration, params: AccuracyParams, *, model: str, dtype: object) -> bool:
    """Whether a check with these parameters may look for this record, by what is known before anything is loaded
    or launched; `dtype` is None where the suite leaves it to the engine."""
    return (
        (recorded.task, recorded.shots, recorded.max_new_tokens)
        == (params.task, params.shots, params.max_new_tokens)
        and recorded.model in (model, model_name(model))
        and dtype in (None, recorded.formats.get("dtype"))
        and all(rule in recorded.asked for rule in (PROMPT_SHAPE, ANSWER_RULE))
    )


def find(records: Iterable[RecordedBaseline], wanted: Configuration) -> RecordedBaseline | None:
    """The record of exactly this configuration."""
    fingerprint = wanted.fingerprint
    return next((record for record in records if record.fingerprint == fingerprint), None)


def nearest(records: Iterable[RecordedBaseline], wanted: Configuration) -> RecordedBaseline | None:
    """The record of the same task that differs in the fewest facts, for messages; the newest of equals."""
    same_task = [record for record in records if record.task == wanted.task]
    newest_first = sorted(same_task, key=lambda record: (record.date, record.fingerprint), reverse=True)
    return min(newest_first, key=lambda record: len(_differences(record.configuration, wanted)), default=None)


def why_none(records: Iterable[RecordedBaseline], wanted: Configuration) -> str:
    """Why no record may be used, as a clause that says what there is."""
    near = nearest(records, wanted)
    if near is None:
        return f"no baseline is recorded for task {wanted.task}"
    return f"no baseline is recorded for this configuration: {explain_difference(near.configuration, wanted)}"


def explain_difference(recorded: Configuration, this: Configuration) -> str:
    """`recorded for shots 0, this run has shots 5; ...`; empty for equal configurations."""
    return "; ".join(
        f"recorded for {name} {before}, this run has {name} {now}"
        for name, before, now in _differences(recorded, this)
    )


def _differences(recorded: Configuration, this: Configuration) -> list[tuple[str, str, str]]:
    """Name, recorded value and value now of every fact that differs."""
    before, now = _facts(recorded), _facts(this)
    names = dict.fromkeys([*before, *now])
    return [
        (name, before.get(name, "none"), now.get(name, "none"))
        for name in names
        if before.get(name, "none") != now.get(name, "none")
    ]


def _facts(configuration: Configuration) -> dict[str, str]:
    facts = {name: _shown(value) for name, value in configuration if name != "formats"}
    return facts | configuration.formats


def _shown(value: object) -> str:
    """A hash by its beginning, which tells two apart, and everything else whole."""
    text = "none" if value is None else str(value)
    return text[:12] if len(text) == sha256().digest_size * 2 else text
