"""The messages between a prefill and a decode rank: one JSON frame each, a `Block` may bring its payload in a second.

A decode rank says `Hello` first, then `Register` for each room, `Credit` for each block it has taken, `Done` for each
`End`. A prefill rank answers `Hello` with nothing, or with `Refuse`, and sends blocks only into slots it has credit
for; a link starts with credit for all its slots. Either says `Cancel`. Order within a link is kept; a link that ends
is never taken up again.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, get_type_hints

from harness.errors import HarnessError, UsageError
from harness.refengine.transfer.told import require_plain


class WireError(HarnessError):
    """The other end does not speak as this release does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """Decode rank `tp_rank` looks for the engine `nonce`; `offer` says where payload is to be put (`Window.offer`)."""

    nonce: str
    tp_rank: int
    shape: dict[str, Any]
    offer: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Nothing can be had over this link."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Register:
    """There is a place for what this rank owns of a prompt of `prompt_len` tokens."""

    room: int
    prompt_len: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The next `rows` rows of a room: `size` bytes in `slot`, or in the frame behind this one."""

    room: int
    slot: int
    rows: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """`slot` may be used again."""

    slot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """That was all of a room for this rank: `rows` in all blocks together. `first` is the first token, for rank 0."""

    room: int
    rows: int
    first: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """All of a room that this link was to bring is in the pool."""

    room: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """The sender of this has given the room up, and forgotten it."""

    room: int
    why: str


Message = Hello | Refuse | Register | Block | Credit | End | Done | Cancel

_KINDS: dict[str, type[Message]] = {
    kind.__name__.lower(): kind for kind in (Hello, Refuse, Register, Block, Credit, End, Done, Cancel)
}
_TYPES: dict[type[Message], dict[str, Any]] = {kind: get_type_hints(kind) for kind in _KINDS.values()}
# What JSON gives for each annotation above.
_ALLOWED: dict[Any, tuple[type, ...]] = {
    int: (int,),
    str: (str,),
    dict[str, Any]: (dict,),
    dict[str, Any] | None: (dict, type(None)),
}


def encode(message: Message) -> bytes:
    """The frame of a message; `decode` is the inverse."""
    return json.dumps({"type": type(message).__name__.lower(), **asdict(message)}).encode()


def decode(frame: bytes) -> Message:
    """Raises WireError naming what is odd: a frame comes from another process, maybe of another release."""
    try:
        values = json.loads(frame.decode())
        require_plain("a message", values)
    except (ValueError, RecursionError) as error:
        raise WireError(f"a message of {len(frame)} bytes is no JSON: {error}") from error
    except UsageError as error:
        raise WireError(str(error)) from error
    if not isinstance(values, dict) or not isinstance(values.get("type"), str):
        raise WireError(f"a message is no object with a type: {str(values)[:100]}")
    kind = _KINDS.get(values.pop("type"))
    if kind is None:
        raise WireError(f"a message is of no known type; known: {', '.join(_KINDS)}")
    return kind(**_checked(kind, values))


def _checked(kind: type[Message], values: dict[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    if names != set(values):
        raise WireError(f"{kind.__name__} has the fields {sorted(values)}; expected {sorted(names)}")
    for name, value in values.items():
        # Exactly: True is no number here. Numbers are counts, ranks and rooms.
        if type(value) not in _ALLOWED[_TYPES[kind][name]] or (type(value) is int and value < 0):
            raise WireError(f"{kind.__name__}.{name} is {value!r:.100}")
    return values
