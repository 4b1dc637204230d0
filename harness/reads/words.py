"""What was seen of one row, in words: the figures that `judge` keeps with a check, as people read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from harness.reads.sources import FI_A2A

Figures = Mapping[str, Any]


# What a gate and a choice of backend make of the number they read.
_ON: Mapping[str, Callable[[Any], bool]] = {
    "gate": lambda size: size > 1,
    "backend": lambda backend: backend == FI_A2A,
}


def in_words(figures: Figures) -> str:
    """`ps: 4 of seed 8, ps 4, live 2, copy 16`; of a gate `live: 1, so off, of seed 8, ps 4, live 1, copy 16`."""
    source = str(figures["source"])
    if figures["absent"]:
        return f"{source}: {figures['absent']}"
    if figures["kind"] == "fact":
        return source
    numbers = telling_drive(figures)
    said = ", ".join(f"{name} {value}" for name, value in numbers.items() if name != "used")
    return f"{source}: {_used(numbers, figures)} of {said}"


def telling_drive(figures: Figures) -> Figures:
    """The drive in which nothing but the source read says what was used, such as the one that closes a gate;
    else the first."""
    drives: list[Figures] = figures["numbers"]
    as_used: Callable[[Any], Any] = _ON.get(figures["kind"], lambda said: said)
    for numbers in drives:
        agreeing = [
            name for name, said in numbers.items() if name != "used" and as_used(said) == numbers["used"]
        ]
        if agreeing == [figures["source"]]:
            return numbers
    return drives[0]


def _used(numbers: Figures, figures: Figures) -> str:
    used = numbers["used"]
    if not isinstance(used, bool):
        return "nothing" if used is None else str(used)
    so = "on" if used else "off"
    return f"{numbers[figures['source']]}, so {so}," if figures["source"] in numbers else so
