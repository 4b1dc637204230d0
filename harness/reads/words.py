"""What was seen of one row, in words: the figures that `judge` keeps with a check, as people read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Figures = Mapping[str, Any]


def in_words(figures: Figures) -> str:
    """`ps: 4 of seed 8, ps 4, live 2, copy 16`; of a gate `live: off where seed on, ps on, live off, copy on`."""
    source = str(figures["source"])
    if figures["absent"]:
        return f"{source}: {figures['absent']}"
    if figures["kind"] == "fact":
        return source
    numbers = telling_drive(figures)
    joined = "of" if figures["kind"] in ("scale", "rank") else "where"
    said = ", ".join(f"{name} {_value(value)}" for name, value in numbers.items() if name != "used")
    return f"{source}: {_value(numbers['used'])} {joined} {said}"


def telling_drive(figures: Figures) -> Figures:
    """The drive in which nothing but the source read says what was used, such as the one that closes a gate;
    else the first."""
    drives: list[Figures] = figures["numbers"]
    for numbers in drives:
        agreeing = [name for name, value in numbers.items() if name != "used" and value == numbers["used"]]
        if agreeing == [figures["source"]]:
            return numbers
    return drives[0]


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "nothing" if value is None else str(value)
