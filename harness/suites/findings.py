"""What a rule found: the place of the value to change, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from harness.suites.wording import Location


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule; `on_key` points at the key rather than its value."""

    location: Location
    message: str
    on_key: bool = False


def below(prefix: Location, findings: Iterable[Finding]) -> Iterator[Finding]:
    """The same findings, of a part of the file that stands at `prefix`."""
    for found in findings:
        yield Finding((*prefix, *found.location), found.message, found.on_key)
