"""What processes of the engine say to each other: requests, queries, the control message of a step, progress.

Plain values with a JSON form. The front sends each `Message` to rank 0; rank 0 packs what it got, together with
the tokens it sampled, into one `Control` message a step, which it broadcasts, so that every rank's scheduler sees
the same events in the same order. Ranks answer the front with dictionaries whose "type" is a `Said`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class FinishType(StrEnum):
    """Why a request ended: its token budget, an end token or stop string, or an abort."""

    LENGTH = "length"
    STOP = "stop"
    ABORT = "abort"


class QueryKind(StrEnum):
    """What the front can ask of all ranks at one step boundary."""

    INFO = "info"
    ROWS = "rows"
    FLUSH = "flush"
    PING = "ping"


class Said(StrEnum):
    """The "type" of a message from a rank to the front.

    PROGRESS and REFUSED come from rank 0 only. The last four tell how far one rank's part of a handover has come:
    all its decode ranks have a place for the prompt (BOUND), have all they own of it (SENT); this decode rank has
    all that it owns (ARRIVED); this part has failed.
    """

    READY = "ready"
    PROGRESS = "progress"
    REFUSED = "refused"
    ANSWER = "answer"
    BOUND = "bound"
    SENT = "sent"
    ARRIVED = "arrived"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """How two engines share a request: `room` names it on both sides.

    `peer` describes the prefill engine that the prompt's KV comes from (a `PeerInfo` as JSON); on the prefill engine,
    which is found by the other, it is None.
    """

    room: int
    peer: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """One prompt, as token ids, with everything that decides its answer.

    `seed` alone decides the draw where `temperature` is above 0 (0 is greedy). `logprob_start` is the first
    prompt position whose log-probability is wanted; None (or the prompt's length) wants none. Without a
    `handover` this engine computes all of it.
    """

    rid: str
    tokens: tuple[int, ...]
    max_new_tokens: int
    temperature: float = 0.0
    seed: int = 0
    ignore_eos: bool = False
    return_logprob: bool = False
    top_logprobs: int = 0
    logprob_start: int | None = None
    handover: Handover | None = None

    @property
    def wants_prompt_logprobs(self) -> bool:
        return self.logprob_start is not None and self.logprob_start < len(self.tokens)

    @property
    def hands_over(self) -> bool:
        """Ends here with its prompt: another engine answers."""
        return self.handover is not None and self.handover.peer is None

    @property
    def takes_over(self) -> bool:
        """Begins here with its first token: another engine computes the prompt."""
        return self.handover is not None and self.handover.peer is not None

    @property
    def handover_key(self) -> str:
        """Names this handover for good. A rid may be used again while some rank still speaks of its last use."""
        return "" if self.handover is None else f"{self.rid}@{self.handover.room}"

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> GenerateRequest:
        handover = values["handover"] and Handover(**values["handover"])
        return cls(**{**values, "tokens": tuple(values["tokens"]), "handover": handover})


def beyond_context(request: GenerateRequest, max_positions: int) -> str | None:
    """Why the model has no positions for all of `request`, naming the numbers; None where it has.

    The front asks before it sends, so that a huge prompt never crosses a pipe; the scheduler asks again.
    """
    prompt, new = len(request.tokens), request.max_new_tokens
    if prompt + new <= max_positions:
        return None
    return (
        f"input_len {prompt} + max_new_tokens {new} = {prompt + new} is above the model's context of "
        f"{max_positions} tokens"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """Forget the request `rid`; harmless where it has ended already. `why` is told to the engine it is shared with."""

    rid: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Every decode rank has a place for the prompt of `rid`: a prefill engine may compute it."""

    rid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Every decode rank has its part of the prompt's KV: a prefill engine may forget `rid`."""

    rid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Every rank of this decode engine has its part of the prompt's KV: go on from `first`.

    That is the first token as `Outputs` tells it: "token", "logprob", "top", and the prompt's where asked for.
    """

    rid: str
    first: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A question to every rank; `id` pairs the answers with it."""

    id: int
    kind: QueryKind


Message = GenerateRequest | Abort | Bound | Release | Begin | Query

_KINDS: dict[str, type[Message]] = {
    "generate": GenerateRequest,
    "abort": Abort,
    "bound": Bound,
    "release": Release,
    "begin": Begin,
    "query": Query,
}


def message_to_dict(message: Message) -> dict[str, Any]:
    """The JSON form of a front's message; `message_from_dict` is its inverse."""
    kind = next(name for name, known in _KINDS.items() if type(message) is known)
    return {"type": kind, **asdict(message)}


def message_from_dict(values: dict[str, Any]) -> Message:
    """Raises KeyError for an unknown "type": both ends are the same release."""
    fields = {key: value for key, value in values.items() if key != "type"}
    kind = _KINDS[values["type"]]
    if kind is GenerateRequest:
        return GenerateRequest.from_dict(fields)
    if kind is Query:
        return Query(id=fields["id"], kind=QueryKind(fields["kind"]))
    return kind(**fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """All that changes a scheduler's state in one step: tokens sampled in the last one, then messages."""

    sampled: dict[str, int]
    messages: tuple[Message, ...] = ()

    def to_bytes(self) -> bytes:
        messages = [message_to_dict(message) for message in self.messages]
        return json.dumps({"sampled": self.sampled, "messages": messages}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Control:
        values = json.loads(data)
        return cls(
            sampled=values["sampled"],
            messages=tuple(message_from_dict(message) for message in values["messages"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A token and its log-probability (natural log), None where nothing stands before it.

    `top` holds (log-probability, token) of the likeliest ones in its place, likeliest first.
    """

    token: int
    logprob: float | None
    top: tuple[tuple[float, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One more token of a request, and why it ended if that was its last. An abort has no token."""

    rid: str
    token: int | None
    finish: FinishType | None = None
