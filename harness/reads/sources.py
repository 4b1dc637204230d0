"""Which source a number came from: assignments of distinct numbers to the sources, and the name that explains all.

Pure. One drive of a consumer can hit a number by coincidence, so each consumer is driven under several
assignments; a source is named only where it explains every answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import permutations

from harness.reads.registry import Answer, Kind

# Every consumer is driven as ranks of this many.
TP_SIZE = 8

# What a model runner carries under `dcp_rank` beside each `dcp_size`, where no constructor put anything there:
# numbers that no other source ever has.
COPY_RANKS = {1: 0, 16: 9, 12: 10, 10: 8}

# The drives: the rank, and the sizes of seed, ps, live and copy. The ranks are such that no other formula gives
# `rank % size` throughout, for no source; tests hold them against those that one could think of.
_ALL_ON = ((7, 8, 4, 2, 16), (6, 4, 2, 8, 12), (5, 2, 8, 4, 10))  # a Latin square
# In turn one source is off, so that a read which another source guards is seen.
_ONE_OFF = ((3, 1, 2, 8, 12), (7, 4, 1, 2, 10), (1, 8, 4, 1, 16), (6, 4, 8, 2, 1))
# And all but one.
_ONE_ON = ((2, 2, 1, 1, 1), (4, 1, 4, 1, 1), (6, 1, 1, 8, 1), (1, 1, 1, 1, 16))

FI_A2A = "fi_a2a"
OTHER_BACKEND = "ag_rs"
# What is said of the rank in a group of one.
OFF = "off"
# Between a source and the one that must be on before it is read, as the table writes it.
GATED_BY = " gated by "


class Source(StrEnum):
    """Where the topology of a worker can be read from."""

    SEED = "seed"  # the launch arguments: server_args.dcp_size, in 0.5.21+ the published config
    PS = "ps"  # the per-worker ParallelState
    LIVE = "live"  # get_parallel()
    COPY = "copy"  # model_runner.dcp_size


@dataclass(frozen=True, slots=True)
class Place:
    """What one source says: a size, the rank in it, and the comm backend."""

    size: int
    rank: int
    backend: str = OTHER_BACKEND


_SINGLE = Place(1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What each source says in one drive, which is made as the rank `tp_rank` of TP_SIZE."""

    tp_rank: int
    seed: Place
    ps: Place
    live: Place
    copy: Place

    def place(self, source: Source) -> Place:
        place: Place = getattr(self, source.value)
        return place

    def said(self, kind: Kind) -> dict[str, int | str]:
        """What each source says of that which a consumer of this kind looks at, as numbers of its own; of a rank
        in a group of one only that it is off, since rank 0 is in larger groups as well."""
        places = {source.value: self.place(source) for source in Source}
        match kind:
            case Kind.RANK:
                return {name: place.rank if place.size > 1 else OFF for name, place in places.items()}
            case Kind.BACKEND:
                return {name: place.backend for name, place in places.items()}
            case _:
                return {name: place.size for name, place in places.items()}


@dataclass(frozen=True, slots=True)
class Observed:
    """One drive: what the sources said, and what came out."""

    assignment: Assignment
    answer: Answer


def assignments(kind: Kind) -> tuple[Assignment, ...]:
    """The drives that tell the sources apart for answers of this kind."""
    match kind:
        case Kind.GATE:
            return tuple(_assign(*numbers) for numbers in _ONE_OFF + _ONE_ON)
        case Kind.BACKEND:
            return (_backends(seed=FI_A2A, live=OTHER_BACKEND), _backends(seed=OTHER_BACKEND, live=FI_A2A))
        case Kind.FACT:
            return (_assign(*_ALL_ON[0]),)
        case _:
            return tuple(_assign(*numbers) for numbers in _ALL_ON + _ONE_OFF + _ONE_ON)


def answer_of(kind: Kind, place: Place) -> Answer:
    """What a consumer of this kind answers when it reads this place."""
    match kind:
        case Kind.SCALE:
            return place.size
        case Kind.RANK:
            return place.rank
        case Kind.GATE:
            return place.size > 1
        case Kind.BACKEND:
            return place.backend == FI_A2A
        case Kind.FACT:
            return None


def name_source(kind: Kind, observed: Sequence[Observed]) -> str:
    """The source that explains every answer, as the table writes it.

    Else the source and the one that must be on before it is read (`live gated by seed`), `none` (nothing was
    there), `constant 3` (the same whatever the sources say) or `unclear`. A FACT is its own name. A source that
    says the same in all assignments can explain nothing, and is not considered.
    """
    answers = [each.answer for each in observed]
    if kind is Kind.FACT:
        return str(answers[0])
    for source, gate in (*((each, each) for each in Source), *permutations(Source, 2)):
        if _explains(kind, observed, source, gate):
            return source.value if source is gate else f"{source.value}{GATED_BY}{gate.value}"
    if not _same(answers, [answers[0]] * len(answers)):
        return "unclear"
    return "none" if answers[0] is None else f"constant {answers[0]}"


def _explains(kind: Kind, observed: Sequence[Observed], source: Source, gate: Source) -> bool:
    """Whether each answer is that of the source, or of a single rank where the gate is off.

    A consumer that uses no number at all while its source or gate is off may answer None then. Gates and
    backends have no number to guard: two that close one are `unclear`.
    """
    if kind not in (Kind.SCALE, Kind.RANK) and gate is not source:
        return False
    told: list[Answer] = []
    for each in observed:
        place = each.assignment.place(source)
        if each.assignment.place(gate).size == 1:
            place = _SINGLE
        is_silent = each.answer is None and place.size == 1 and kind in (Kind.SCALE, Kind.RANK)
        told.append(None if is_silent else answer_of(kind, place))
    return _same(told, [each.answer for each in observed]) and len(set(told)) > 1


def _same(left: Sequence[Answer], right: Sequence[Answer]) -> bool:
    """Equal in type as well: True is no rank 1."""
    return [(type(each), each) for each in left] == [(type(each), each) for each in right]


def _assign(tp_rank: int, seed: int, ps: int, live: int, copy: int) -> Assignment:
    return Assignment(
        tp_rank=tp_rank,
        seed=Place(seed, tp_rank % seed),
        ps=Place(ps, tp_rank % ps),
        live=Place(live, tp_rank % live),
        copy=Place(copy, COPY_RANKS[copy]),
    )


def _backends(*, seed: str, live: str) -> Assignment:
    """DCP is on in every source; they differ in the backend, which per-worker states do not carry."""
    on = _assign(*_ALL_ON[0])
    return replace(on, seed=replace(on.seed, backend=seed), live=replace(on.live, backend=live))
