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


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientBody:
    """One client's request. `prompts` is how many it lists, None for a single one; `rids` are the names that the
    client may abort it by."""

    endpoint: Endpoint
    fields: dict[str, Any]
    prompts: int | None
    rids: tuple[str, ...]

    @property
    def stream(self) -> bool:
        return self.fields.get("stream") is True

    def rooms(self, draw: Callable[[int], int] = secrets.randbits) -> Rooms:
        """Fresh rooms; every attempt needs its own, since a late block of the one before must find nobody."""
        count = 1 if self.prompts is None else self.prompts
        return Rooms(tuple(draw(ROOM_BITS) for _ in range(count)), listed=self.prompts is not None)

    def for_prefill(self, rooms: Rooms) -> bytes:
        """Never a stream: all that is wanted from the prefill side is how it ended, as a status."""
        whole = {"stream": False} if self.stream else {}
        return _encode({**self.fields, **whole, "bootstrap_room": rooms.field})

    def for_decode(self, rooms: Rooms, *, prefill_url: str) -> bytes:
        host, port = host_and_port(prefill_url)
        return _encode(
            {
                **self.fields,
                "bootstrap_host": rooms.spread(host),
                "bootstrap_port": rooms.spread(port),
                "bootstrap_room": rooms.field,
            }
        )


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
