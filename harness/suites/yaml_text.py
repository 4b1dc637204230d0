"""The text of a YAML file: small, UTF-8, without tabs, and with `${x}` safe to parse.

Phases: size (from the file's metadata, before a byte is read), bytes, UTF-8, tabs, shielded variables. Each
raises `SourceError` at the place it found.
"""

from __future__ import annotations

import re
import stat
from pathlib import Path

from harness.errors import Mark, SourceError

# The largest suite of the field is 4 KiB; 64 times that still parses in well under two seconds.
MAX_BYTES = 256 * 1024

# Two private-use characters, which no file may hold itself.
_SHIELDS = "\ue000\ue001"
_UNSHIELD = str.maketrans(_SHIELDS, "{}")
_VARIABLE = re.compile(r"\$\{([^{}\n]*)\}")


def read_text(path: Path) -> str:
    """The text of `path`, variables shielded; SourceError where it is no small UTF-8 file free of tabs."""
    start = Mark(path, 1, 1)
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            raise SourceError(start, "is not a regular file")
        if info.st_size > MAX_BYTES:
            found = f"the file has {info.st_size:,} bytes"
            raise SourceError(start, f"{found}; allowed: {MAX_BYTES:,} bytes or fewer")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SourceError(start, f"cannot be read: {reason}") from None
    return _shield(_decode(path, data))


def _decode(path: Path, data: bytes) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        where = mark_of(path, before, len(before))
        raise SourceError(
            where, f"byte 0x{data[error.start]:02x} is not UTF-8; allowed: UTF-8 text"
        ) from None
    if not text.strip():
        raise SourceError(Mark(path, 1, 1), "the file is empty; allowed: one YAML mapping")
    if (tab := text.find("\t")) >= 0:
        raise SourceError(mark_of(path, text, tab), "a tab; allowed: spaces")
    for private in _SHIELDS:
        if (index := text.find(private)) >= 0:
            found = f"the private character U+{ord(private):04X}"
            raise SourceError(mark_of(path, text, index), f"{found}; allowed: text that others can read")
    return text


def mark_of(path: Path, text: str, index: int) -> Mark:
    """The place of the character `index` of `text`."""
    before = text[:index]
    return Mark(path, before.count("\n") + 1, index - (before.rfind("\n") + 1) + 1)


def _shield(text: str) -> str:
    """`text` with the braces of `${x}` made ordinary characters, so that `{dcp: ${dcp}}` needs no quotes.

    Lengths stay, and with them all positions; `unshield` puts the braces back into each scalar.
    """
    return _VARIABLE.sub(rf"${_SHIELDS[0]}\1{_SHIELDS[1]}", text)


def unshield(text: str) -> str:
    """A scalar as it was written."""
    return text.translate(_UNSHIELD)
