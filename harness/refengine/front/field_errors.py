"""What pydantic found wrong with a body, told once for each field. No I/O.

A field that takes one value or a list of them is tried as both, and pydantic reports every try, with the
type tried as a part of the place: `sampling_params.SamplingParams.top_p`, `sampling_params.list[SamplingParams]`.
The try that came furthest into the value is the one the caller meant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Place = tuple[str | int, ...]

# Types that the bodies' unions are made of, as pydantic writes them into places.
_TYPES = {"int", "str", "bool", "float", "SamplingParams"}
_TYPE_BEGINNINGS = ("list[", "constrained-")


def tell_errors(errors: Sequence[Any]) -> list[str]:
    """`sampling_params.top_p: only 1.0 is supported, found 0.5` for each wrong field, in order."""
    tries: dict[str | int, list[tuple[Place, str]]] = {}
    for error in errors:
        place = _place(error)
        tries.setdefault(place[0] if place else "", []).append((place, _message(error)))
    told: list[str] = []
    for field in tries.values():
        deepest = max(len(place) for place, _ in field)
        told += [_line(place, message) for place, message in field if len(place) == deepest]
    return list(dict.fromkeys(told))


def _place(error: Any) -> Place:
    """Names and indices only. The last part of an unknown field's place is the caller's own word for it."""
    *outer, last = error["loc"]
    own = last if error["type"] == "extra_forbidden" or not _is_type(last) else None
    parts = [part for part in outer if not _is_type(part)]
    return tuple(part for part in (*parts, own) if part not in (None, "body"))


def _is_type(part: str | int) -> bool:
    return isinstance(part, str) and (part in _TYPES or part.startswith(_TYPE_BEGINNINGS))


def _message(error: Any) -> str:
    message = str(error["msg"]).removeprefix("Value error, ")
    return f"{message}: {error['ctx']['error']}" if error["type"] == "json_invalid" else message


def _line(place: Place, message: str) -> str:
    return f"{'.'.join(map(str, place))}: {message}" if place else message
