"""How messages of the suite language name values, fields and near names: alike wherever a mistake is found."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from harness.suites.yaml_scalars import short

# Keys and indices from the root of a file to a value.
Location = tuple[str | int, ...]


def suggest(word: str, allowed: Iterable[str]) -> str:
    """`; did you mean 'x'? (allowed: ...)` for a name that is none of `allowed`."""
    names = list(allowed)
    swapped = [
        name for name in names if sorted(name) == sorted(word)
    ]  # `dpc` is no `dp`, but a mistyped `dcp`
    near = swapped or difflib.get_close_matches(word, names, n=1, cutoff=0.5 if len(word) < 4 else 0.6)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{hint} (allowed: {', '.join(names) or 'no keys'})"


def show(value: object) -> str:
    """A value as a person wrote it, short enough for one line."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def dotted(location: Location) -> str:
    """`profiles.cpu.checks[2]`, the way messages name a field."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{short(part)}" for part in location)
    return text.removeprefix(".")
