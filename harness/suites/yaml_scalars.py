"""What a plain (unquoted) YAML scalar means here: YAML 1.2's core values, and errors for 1.1's surprises.

`1e-4` is a number (1.1 reads text), `on` and `1:30` are errors (1.1 reads True and 90), dates stay text.
Quoted scalars are always text and never come here.
"""

from __future__ import annotations

import math
import re

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE_FALSE = {"true": True, "false": False}
_OTHER_BOOLS = frozenset({"yes", "no", "on", "off", "y", "n", "true", "false"})
# 18 digits always fit 64 bits, which is what an engine's own parser takes.
_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
# Numbers that YAML 1.1, 1.2 and people read differently, or that nobody means, and what to write instead.
_REFUSED = (
    (r"[-+]?0[0-9_]+|[-+]?0[oO][0-7_]+", "may be octal; allowed: a decimal number without leading zeros"),
    (r"[-+]?0[xXbB][0-9a-fA-F_]+", "is not decimal; allowed: a decimal number"),
    (r"[-+]?[0-9_]*[0-9][0-9_]*", "is no plain number; allowed: up to 18 digits without '_'"),
    (r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?", "counts in sixties in YAML 1.1; allowed: 90s, 4m"),
    (r"[-+]?\.(?i:inf|nan)", "is not a finite number; allowed: finite numbers"),
)
_FLOAT = re.compile(r"[-+]?(\.[0-9]{1,40}|[0-9]{1,40}(\.[0-9]{0,40})?)([eE][-+]?[0-9]{1,4})?")


class ScalarError(ValueError):
    """A scalar that reads one way and means another."""


def check_text(text: str) -> None:
    """Refuse control characters and lone surrogates, which escapes can smuggle past the reader."""
    for char in text:
        code = ord(char)
        if (code < 0x20 and char not in "\n\t") or code == 0x7F or 0xD800 <= code <= 0xDFFF:
            raise ScalarError(f"the text holds the character U+{code:04X}; allowed: printable text")


def resolve_plain(text: str) -> str | int | float | bool | None:
    """The value of a plain scalar; ScalarError names the value and what to write in its place."""
    if text in _NULLS:
        return None
    if text in _TRUE_FALSE:
        return _TRUE_FALSE[text]
    if text.lower() in _OTHER_BOOLS:
        raise ScalarError(
            f"{short(text)} is a boolean in YAML 1.1 only; allowed: true, false, or text in quotes"
        )
    if _INT.fullmatch(text):
        return int(text)
    if refusal := _refused_number(text):
        raise ScalarError(refusal)
    return _float(text) if _FLOAT.fullmatch(text) else text


def _refused_number(text: str) -> str | None:
    for pattern, reason in _REFUSED:
        if re.fullmatch(pattern, text):
            return f"{short(text)} {reason}, or text in quotes"
    return None


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ScalarError(f"{short(text)} is too large; allowed: finite numbers, or text in quotes")
    return value


def short(text: str) -> str:
    """`text` cut to a length that fits a message."""
    return text if len(text) <= 40 else text[:37] + "..."
