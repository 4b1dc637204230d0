"""Which source a number came from: assignments of distinct numbers to the sources, and the name that explains all.

Pure. One drive of a consumer can hit a number by coincidence, so each consumer is driven under several
assignments; a source is named only where it explains every answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from harness.reads.registry import Answer, Kind

# Every consumer is driven as this rank of this many: its rank in a group of 8, 4, 2 is 7, 3, 1, all different.
TP_SIZE = 8
TP_RANK = 7
# What a model runner carries under `dcp_size` in each drive, where no constructor put anything there, and under
# `dcp_rank`: numbers that no other source ever has.
COPY_SIZES = (16, 12, 10)
COPY_RANKS = {1: 0, 16: 9, 12: 10, 10: 8}

FI_A2A = "fi_a2a"
OTHER_BACKEND = "ag_rs"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What each source says in one drive."""

    seed: Place
    ps: Place
    live: Place
    copy: Place

    def place(self, source: Source) -> Place:
        place: Place = getattr(self, source.value)
        return place

    def said(self, kind: Kind) -> dict[str, int | str]:
        """What each source says of that which a consumer of this kind looks at, as numbers of its own."""
        places = {source.value: self.place(source) for source in Source}
        match kind:
            case Kind.RANK:
                return {name: place.rank for name, place in places.items()}
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
            # In turn one source says "off" and all others "on": the one that closes the gate is read.
            closed = ((1, 4, 2, 16), (8, 1, 2, 16), (8, 4, 1, 16), (8, 4, 2, 1))
            return tuple(_assign(*sizes) for sizes in closed)
        case Kind.BACKEND:
            return (_backends(seed=FI_A2A, live=OTHER_BACKEND), _backends(seed=OTHER_BACKEND, live=FI_A2A))
        case Kind.FACT:
            return (_assign(8, 4, 2, COPY_SIZES[0]),)
        case _:
            # A Latin square: each source says each number once.
            square = ((8, 4, 2), (4, 2, 8), (2, 8, 4))
            return tuple(_assign(*sizes, copy) for sizes, copy in zip(square, COPY_SIZES, strict=True))


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

    Else `none` (nothing was there), `constant 3` (the same whatever the sources say) or `unclear`. A FACT is its
    own name. A source that says the same in all assignments can explain nothing, and is not considered.
    """
    answers = [each.answer for each in observed]
    if kind is Kind.FACT:
        return str(answers[0])
    for source in Source:
        told = [answer_of(kind, each.assignment.place(source)) for each in observed]
        if _same(told, answers) and len(set(told)) > 1:
            return source.value
    if not _same(answers, [answers[0]] * len(answers)):
        return "unclear"
    return "none" if answers[0] is None else f"constant {answers[0]}"


def _same(left: Sequence[Answer], right: Sequence[Answer]) -> bool:
    """Equal in type as well: True is no rank 1."""
    return [(type(each), each) for each in left] == [(type(each), each) for each in right]


def _assign(seed: int, ps: int, live: int, copy: int) -> Assignment:
    return Assignment(
        seed=Place(seed, TP_RANK % seed),
        ps=Place(ps, TP_RANK % ps),
        live=Place(live, TP_RANK % live),
        copy=Place(copy, COPY_RANKS[copy]),
    )


def _backends(*, seed: str, live: str) -> Assignment:
    """DCP is on in every source; they differ in the backend, which per-worker states do not carry."""
    return Assignment(
        seed=Place(8, 7, seed),
        ps=Place(4, 3),
        live=Place(2, 1, live),
        copy=Place(COPY_SIZES[0], COPY_RANKS[COPY_SIZES[0]]),
    )
