"""What another process told as JSON, before anything looks into it.

It may be of another release, or no engine at all. What passes here can be shown, compared, sent on and answered
over HTTP without any further thought: by then only its types and values can be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from harness.errors import UsageError

# Log-probabilities of a prompt, the deepest that an engine tells, take 5 levels: what nests deeper than Python's
# stack has room for cannot even be shown.
MAX_DEPTH = 16
# What every machine word, and every reader of JSON, holds.
_MIN_INT, _MAX_INT = -(2**63), 2**63 - 1


def require_plain(what: str, told: object) -> None:
    """Raises UsageError where values nest too deep, a number exceeds 64 bits, or a text is none that UTF-8 has."""
    level: list[object] = [told]
    for _ in range(MAX_DEPTH):
        level = [part for value in level for part in _parts(what, value)]
        if not level:
            return
    raise UsageError(f"{what} nests deeper than {MAX_DEPTH} levels")


def _parts(what: str, value: object) -> Iterable[object]:
    """What a value is made of; raises UsageError where it is odd itself."""
    match value:
        case Mapping():
            return [*value.keys(), *value.values()]
        case list():
            return value
        case str() if not _is_text(value):
            raise UsageError(f"{what} holds {value[:100]!a}, which is no text")
        case int() if not _MIN_INT <= value <= _MAX_INT:
            raise UsageError(f"{what} holds a number beyond 64 bits")
    return ()


def _is_text(value: str) -> bool:
    # A lone half of a pair of surrogates can be written in JSON, but nowhere else.
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
