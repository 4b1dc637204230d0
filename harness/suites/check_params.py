"""The parameters of every check, one model each, and the table that maps a check's name to its model.

A check reads its parameters as attributes of these models and never parses anything itself. Adding a check
means one class here, one line in `CHECK_PARAMS`, and one module in `checks/`. Lengths and sizes are in tokens
and requests; bounds on logprobs are absolute differences in nats.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator
from pydantic.types import Strict

from harness.suites.fields import (
    EACH_ONCE,
    UNIQUE,
    Bound,
    Count,
    Index,
    Model,
    Regex,
    Seconds,
    Share,
    Size,
    Sizes,
    Text,
)
from harness.topology import Side


class Victim(StrEnum):
    """What of an engine is killed: its launcher, and so all of it; or one rank, the last."""

    ENGINE = "engine"
    RANK = "rank"


class Moment(StrEnum):
    """When: as soon as the engine has the requests, or once the first of them is being answered."""

    HANDOVER = "handover"
    ANSWERING = "answering"


class CheckParams(Model):
    """Base of all check parameters."""

    settled_keys: ClassVar[tuple[str, ...]] = ("cpu", "gpu")
    # Whether the check has gates with false alarms, of which all such checks of a run share one allowance.
    gated: ClassVar[bool] = False
    # Whether it looks at what a prefill engine hands to a decode engine, and so needs both.
    of_pairs: ClassVar[bool] = False
    # Whether it kills engines, and so runs only where a job has launched them.
    kills: ClassVar[bool] = False


class ActiveParams(CheckParams):
    """The engine really runs DCP of this size: by its live topology and its counted collectives."""

    dcp: Size


class SourcesParams(CheckParams):
    """Seed, per-worker state and live topology of every rank say the same; nothing to set."""


class ParityParams(CheckParams):
    """Greedy answers equal the baseline's, one request at a time, over prompts of `lengths` tokens."""

    model: Text | None = None
    dtype: Text | None = None
    logprob: Bound = 1e-4
    tokens: Literal["exact", "prefix"] = "exact"
    # Around the shards of dcp <= 8, a page of 64, and a prefill chunk of 256.
    lengths: Sizes = (1, 2, 3, 4, 5, 7, 8, 9, 63, 64, 65, 257)
    max_new_tokens: Count = 16
    seed: Index = 0


class BatchParams(CheckParams):
    """Bursts of `sizes` requests answer as the same requests do alone, but for `mismatch_share` of them."""

    sizes: Sizes
    prompt_len: Count = 12
    max_new_tokens: Count = 8
    mismatch_share: Share = 0.0
    logprob: Bound = 1e-4


class CapacityParams(CheckParams):
    """The reported capacity is what the layout promises against the baseline's; nothing to set."""


class CapsParams(CheckParams):
    """Requests that fit are answered in full, those that never can are refused, on both sides of each cap."""

    max_new_tokens: Count = 4


class RowsParams(CheckParams):
    """Every physical KV row of every rank holds the token that brute-force ownership puts there."""

    lengths: Sizes = (1, 5, 64, 65)
    max_new_tokens: Count = 64


class DrainedParams(CheckParams):
    """After all other checks, within `wait` seconds, no request is left and every KV row is free."""

    wait: Seconds = 10.0


class TransferParams(CheckParams):
    """Each decode rank got exactly the prompt rows it owns, and no byte was sent twice; requests of `lengths`."""

    of_pairs: ClassVar[bool] = True

    lengths: Sizes = (1, 5, 64, 65)
    max_new_tokens: Count = 64


class InterruptParams(CheckParams):
    """One engine of the pair, or one rank of it, is killed while requests run, once for each side, victim and moment.

    Every one of `requests` has an answer or an error within `within` seconds of the kill; the other side is
    drained within `wait` seconds; the side that is started again answers as before.
    """

    of_pairs: ClassVar[bool] = True
    kills: ClassVar[bool] = True

    sides: Annotated[tuple[Side, ...], Field(min_length=1), EACH_ONCE, UNIQUE] = tuple(Side)
    victims: Annotated[tuple[Victim, ...], Field(min_length=1), EACH_ONCE, UNIQUE] = tuple(Victim)
    moments: Annotated[tuple[Moment, ...], Field(min_length=1), EACH_ONCE, UNIQUE] = tuple(Moment)
    requests: Annotated[int, Strict(), Field(ge=2, le=64)] = 4
    prompt_len: Count = 256
    max_new_tokens: Count = 128
    within: Seconds = 60.0
    wait: Seconds = 10.0


class AccuracyParams(CheckParams):
    """A scored task, gated against a recorded baseline and the dcp=1 run of the same questions.

    `questions` are asked first, all up to `escalate` only when those look suspicious. `effect` is the drop in
    accuracy that must be found (0.03 is three points), `alpha` the false alarms that are allowed. `data` is a
    path or URL of the real GSM8K. `aa` is how often the baseline is asked again to measure its own flips.
    """

    gated: ClassVar[bool] = True

    task: Literal["sums", "gsm8k"]
    questions: Count = 200
    escalate: Count | None = None
    shots: Annotated[int, Strict(), Field(ge=0, le=100)] = 5
    # What 200 questions find in a deterministic engine.
    effect: Share = 0.05
    alpha: Annotated[float, Strict(), Field(gt=0.0, lt=0.5)] = 1e-3
    data: Text | None = None
    # Questions go out in whole batches, so that an early stop never sees the short answers first.
    batch: Count = 64
    concurrency: Annotated[int, Strict(), Field(ge=1, le=1024)] = 64
    max_new_tokens: Count = 512
    early_stop: Literal["broken", "both", "none"] = "broken"
    aa: Annotated[int, Strict(), Field(ge=0, le=20)] = 0
    seed: Index = 0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.escalate is not None and self.escalate <= self.questions:
            raise ValueError(
                f"'escalate' is {self.escalate}; allowed: more than 'questions' ({self.questions})"
            )
        if self.data is not None and self.task == "sums":
            raise ValueError("'data' is GSM8K's file; allowed: with task gsm8k (sums are made on the spot)")
        return self


class OwnProbe(Model):
    """A question of the suite's own, and a regular expression that some part of a right answer matches."""

    prompt: Text
    expect: Regex


class DecodeSanityParams(CheckParams):
    """Simple questions get sane, repeatable, printable answers.

    `probes` is what the model can be asked; left out, its name decides. `ask` are more questions.
    """

    probes: Literal["chat", "sums", "bytes"] | None = None
    ask: Annotated[tuple[OwnProbe, ...], Field(max_length=100)] = ()
    max_new_tokens: Count = 64
    # Upstream's bounds, never to be met themselves. Healthy English has a share of more than 0.9, noise of broken
    # weights one of less than 0.5.
    printable_share: Annotated[float, Strict(), Field(ge=0.0, lt=1.0)] = 0.85
    # One piece of five characters in a quarter of all places: the answer is a loop of at most four characters.
    repeat_share: Annotated[float, Strict(), Field(gt=0.0, le=1.0)] = 0.25


CHECK_PARAMS: dict[str, type[CheckParams]] = {
    "active": ActiveParams,
    "sources": SourcesParams,
    "parity": ParityParams,
    "batch": BatchParams,
    "capacity": CapacityParams,
    "caps": CapsParams,
    "rows": RowsParams,
    "transfer": TransferParams,
    "drained": DrainedParams,
    "interrupt": InterruptParams,
    "accuracy": AccuracyParams,
    "decode_sanity": DecodeSanityParams,
}
