"""A client's body, and what of it each side is sent. No I/O.

Both engines get the client's own fields, so that they check and refuse what a monolithic engine would; the router
adds the rooms in which the two sides meet, and reads only what it needs for that.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from harness.errors import UsageError
from harness.refengine.router.config import host_and_port

# SGLang's rooms are numbers of 63 bits.
ROOM_BITS = 63
BOOTSTRAP_PREFIX = "bootstrap_"


class Endpoint(StrEnum):
    """What goes through a pair."""

    GENERATE = "/generate"
    COMPLETIONS = "/v1/completions"
    CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Rooms:
    """Where one attempt's requests meet: one number for each prompt, `listed` where the client sent a list."""

    numbers: tuple[int, ...]
    listed: bool

    def spread(self, value: Any) -> Any:
        """`value` as the engines want it beside these rooms: once, or once for each prompt."""
        return [value] * len(self.numbers) if self.listed else value

    @property
    def field(self) -> int | list[int]:
        return list(self.numbers) if self.listed else self.numbers[0]

    @property
    def name(self) -> str:
        """What the engines call a request that its client gave no name: both the same, each attempt another."""
        return f"room-{self.numbers[0]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientBody:
    """One client's request. `prompts` is how many it lists, None for a single one; `rids` are the names that the
    client gave it."""

    endpoint: Endpoint
    fields: dict[str, Any]
    prompts: int | None
    rids: tuple[str, ...]

    @property
    def stream(self) -> bool:
        return self.fields.get("stream") is True

    @property
    def names(self) -> frozenset[str]:
        """What the engines call each prompt that has a name: one name for a list becomes `name_0`, `name_1`, …"""
        alone = self.prompts is None or (self.endpoint is Endpoint.COMPLETIONS and self.prompts == 1)
        if alone or isinstance(self.fields.get("rid"), list):
            return frozenset(self.rids)
        return frozenset(f"{rid}_{number}" for rid in self.rids for number in range(self.prompts or 0))

    def orders(self, rooms: Rooms) -> tuple[str, ...]:
        """The names by which the engines are told to abort all of it."""
        return self.rids or (rooms.name,)

    def rooms(self, draw: Callable[[int], int] = secrets.randbits) -> Rooms:
        """Fresh rooms; every attempt needs its own, since a late block of the one before must find nobody."""
        count = 1 if self.prompts is None else self.prompts
        return Rooms(tuple(draw(ROOM_BITS) for _ in range(count)), listed=self.prompts is not None)

    def for_prefill(self, rooms: Rooms) -> bytes:
        """Never a stream: all that is wanted from the prefill side is how it ended, as a status."""
        whole = {"stream": False} if self.stream else {}
        return _encode({**self._named(rooms), **whole, "bootstrap_room": rooms.field})

    def for_decode(self, rooms: Rooms, *, prefill_url: str) -> bytes:
        host, port = host_and_port(prefill_url)
        return _encode(
            {
                **self._named(rooms),
                "bootstrap_host": rooms.spread(host),
                "bootstrap_port": rooms.spread(port),
                "bootstrap_room": rooms.field,
            }
        )

    def _named(self, rooms: Rooms) -> dict[str, Any]:
        return self.fields if self.fields.get("rid") is not None else {**self.fields, "rid": rooms.name}


def parse_body(endpoint: Endpoint, body: bytes) -> ClientBody:
    """Raises UsageError for what is no JSON object, and for fields that are the router's own."""
    fields = parse_object(body)
    if taken := sorted(name for name in fields if name.startswith(BOOTSTRAP_PREFIX)):
        raise UsageError(f"{', '.join(taken)}: the router chooses these; send the request without")
    return ClientBody(
        endpoint=endpoint, fields=fields, prompts=_prompts(endpoint, fields), rids=_rids(fields)
    )


def parse_object(body: bytes) -> dict[str, Any]:
    """Raises UsageError for what is no JSON object."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the body is no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise UsageError(f"the body is a JSON {type(fields).__name__}; expected an object")
    return fields


def parse_abort(body: bytes) -> str | None:
    """The request that a client wants ended, None for all. Raises UsageError for what the engines would refuse."""
    fields = parse_object(body)
    rid, every = fields.get("rid", ""), fields.get("abort_all", False)
    if unknown := sorted(fields.keys() - {"rid", "abort_all"}):
        raise UsageError(f"{', '.join(unknown)}: unknown; an abort has rid or abort_all")
    if not isinstance(rid, str):
        raise UsageError(f"rid is {rid!r}; it must be a string")
    if not isinstance(every, bool):
        raise UsageError(f"abort_all is {every!r}; it must be true or false")
    if bool(rid) == every:
        raise UsageError("give either rid or abort_all: true")
    return rid or None


def is_covered(name: str, *, by: str) -> bool:
    """Whether the engines end what they call `name` when told to abort `by`: that one, or all of a list."""
    number = name.removeprefix(f"{by}_")
    return name == by or (number != name and number.isdecimal())


def aborted_in(answer: bytes) -> bool:
    """Whether a whole answer, of any endpoint, tells of a request that was aborted."""
    try:
        told = json.loads(answer)
        return any("abort" in _finishes(one) for one in (told if isinstance(told, list) else [told]))
    # What is no answer tells nothing.
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        return False


def _finishes(answer: dict[str, Any]) -> list[str]:
    """How each generation of one answer ended, native or OpenAI's."""
    if "meta_info" in answer:
        return [answer["meta_info"]["finish_reason"]["type"]]
    return [choice["finish_reason"] for choice in answer["choices"]]


def _prompts(endpoint: Endpoint, fields: dict[str, Any]) -> int | None:
    """How many prompts are listed. What fits no rule counts as one prompt: the engines have the words for it."""
    match endpoint:
        case Endpoint.CHAT:
            return None
        case Endpoint.COMPLETIONS:
            return _listed(fields.get("prompt"), of=(str, list))
        case Endpoint.GENERATE:
            text = fields.get("text")
            return _listed(fields.get("input_ids"), of=(list,)) if text is None else _listed(text, of=(str,))


def _listed(given: Any, *, of: tuple[type, ...]) -> int | None:
    is_list = isinstance(given, list) and given and all(isinstance(one, of) for one in given)
    return len(given) if is_list else None


def _rids(fields: dict[str, Any]) -> tuple[str, ...]:
    rid = fields.get("rid")
    names: Sequence[Any] = rid if isinstance(rid, list) else [rid]
    return tuple(name for name in names if isinstance(name, str) and name)


def _encode(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()
