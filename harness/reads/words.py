"""What was seen of one row, in words: the figures that `judge` keeps with a check, as people read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from harness.reads.sources import FI_A2A, GATED_BY, OFF

Figures = Mapping[str, Any]


# What a gate and a choice of backend make of the number they read.
_ON: Mapping[str, Callable[[Any], bool]] = {
    "gate": lambda size: size > 1,
    "backend": lambda backend: backend == FI_A2A,
}


def in_words(figures: Figures) -> str:
    """`ps: 4 of seed 8, ps 4, live 2, copy 16`; of a gate `live: 1, so off, of seed 8, ps 4, live 1, copy 16`; every
    drive of what is unclear."""
    source = str(figures["source"])
    if figures["absent"]:
        return f"{source}: {figures['absent']}"
    if figures["kind"] == "fact":
        return source
    if source == "unclear":
        return f"{source}: {_every_drive(figures['numbers'])}"
    numbers = telling_drive(figures)
    comma = "," if isinstance(numbers["used"], bool) and source in numbers else ""
    said = ", ".join(f"{name} {value}" for name, value in _said(numbers).items())
    return f"{in_short(figures)}{comma} of {said}"


def in_short(figures: Figures) -> str:
    """The same without what the other sources said: `ps: 4`, `live: 1, so off`."""
    source = str(figures["source"])
    if figures["absent"] or figures["kind"] == "fact" or source == "unclear":
        return source
    return f"{source}: {_used(telling_drive(figures), figures)}"


def telling_drive(figures: Figures) -> Figures:
    """The drive in which nothing but the source read says what was used, such as the one that closes a gate; of a
    read that another source guards one that the guard closed; else the first."""
    drives: list[Figures] = figures["numbers"]
    as_used: Callable[[Any], Any] = _ON.get(figures["kind"], lambda said: said)
    inner, _, gate = str(figures["source"]).partition(GATED_BY)
    for numbers in drives:
        agreeing = [name for name, said in _said(numbers).items() if as_used(said) == numbers["used"]]
        if (numbers[gate] in (1, OFF) and inner not in agreeing) if gate else agreeing == [inner]:
            return numbers
    return drives[0]


def _every_drive(drives: list[Figures]) -> str:
    """`2, 8, 1 as tp_rank 7, 6, 5 of seed 8, 4, 1; live 2, 8, 4`, the first drive first."""
    said = "; ".join(f"{name} {_listed(drives, name)}" for name in _said(drives[0]))
    return f"{_listed(drives, 'used')} as tp_rank {_listed(drives, 'tp_rank')} of {said}"


def _listed(drives: list[Figures], name: str) -> str:
    return ", ".join(_plain(numbers.get(name, "unknown")) for numbers in drives)


def _said(numbers: Figures) -> Figures:
    """What the sources said."""
    return {name: value for name, value in numbers.items() if name not in ("used", "tp_rank")}


def _plain(used: Any) -> str:
    if isinstance(used, bool):
        return "on" if used else "off"
    return "nothing" if used is None else str(used)


def _used(numbers: Figures, figures: Figures) -> str:
    told = _plain(numbers["used"])
    if isinstance(numbers["used"], bool) and figures["source"] in numbers:
        return f"{numbers[figures['source']]}, so {told}"
    return told
