"""Naming the source of a number: it explains every answer, and no coincidence counts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reads_helpers import fake_consumer

from harness.reads.drive import Observation
from harness.reads.registry import Kind, Role
from harness.reads.sources import Assignment, Observed, Place, Source, assignments, name_source

FIELD = {Kind.SCALE: "size", Kind.RANK: "rank"}
NUMBERED = st.sampled_from(list(FIELD))
SOURCES = st.sampled_from(list(Source))
# Those whose rank follows from the size.
PLACED = (Source.SEED, Source.PS, Source.LIVE)


def said(kind: Kind, assignment: Assignment, source: Source) -> Any:
    """What reading that source gives, looked up by hand."""
    place: Place = getattr(assignment, source.value)
    if kind is Kind.GATE:
        return place.size != 1
    if kind is Kind.BACKEND:
        return place.backend == "fi_a2a"
    return getattr(place, FIELD[kind])


def name(kind: Kind, answers: list[object]) -> str:
    drives = assignments(kind)
    assert len(answers) == len(drives)
    return name_source(kind, [Observed(each, answer) for each, answer in zip(drives, answers, strict=True)])


@pytest.mark.parametrize("kind", [Kind.SCALE, Kind.RANK, Kind.GATE, Kind.BACKEND])
@pytest.mark.parametrize("source", Source)
def test_a_consumer_that_reads_one_source_is_named_by_it(kind: Kind, source: Source) -> None:
    answers = [said(kind, each, source) for each in assignments(kind)]
    silent = kind is Kind.BACKEND and source in (Source.PS, Source.COPY)  # neither carries a backend
    assert name(kind, answers) == ("constant False" if silent else source.value)


@pytest.mark.parametrize("kind", FIELD)
def test_a_first_drive_gives_every_source_another_number(kind: Kind) -> None:
    first = assignments(kind)[0]
    assert len({said(kind, first, source) for source in Source}) == len(Source)


@pytest.mark.parametrize("kind", [Kind.SCALE, Kind.RANK, Kind.GATE])
def test_no_two_sources_give_the_same_answers_throughout(kind: Kind) -> None:
    drives = assignments(kind)
    for one, other in combinations(Source, 2):
        assert [said(kind, each, one) for each in drives] != [said(kind, each, other) for each in drives]


def test_a_rank_is_that_of_its_size_and_no_other_source_s() -> None:
    for each in assignments(Kind.RANK):
        for source in PLACED:
            place = each.place(source)
            assert place.rank == each.tp_rank % place.size


# What a consumer could take for the rank in a group of `size`, of rank `rank` of `tp` in all.
WRONG_RANKS: dict[str, Callable[[int, int, int], int]] = {
    "the last": lambda rank, size, tp: size - 1,
    "the first": lambda rank, size, tp: 0,
    "the second, else the first": lambda rank, size, tp: min(1, size - 1),
    "the middle": lambda rank, size, tp: size // 2,
    "the group": lambda rank, size, tp: rank // size,
    "strided": lambda rank, size, tp: rank // (tp // size),
    "place among the groups": lambda rank, size, tp: rank % (tp // size),
    "group, wrapped": lambda rank, size, tp: rank // size % size,
    "the whole rank": lambda rank, size, tp: rank,
    "no more than the last": lambda rank, size, tp: min(rank, size - 1),
    "the next": lambda rank, size, tp: (rank + 1) % size,
    "the one before": lambda rank, size, tp: (rank - 1) % size,
    "from the end": lambda rank, size, tp: size - 1 - rank % size,
    "mirrored": lambda rank, size, tp: -rank % size,
    "even or odd": lambda rank, size, tp: min(rank % 2, size - 1),
    "of tp": lambda rank, size, tp: tp % size,
    "of the size": lambda rank, size, tp: size,
    "bits": lambda rank, size, tp: rank & (size // 2),
    "of a group of four": lambda rank, size, tp: min(rank % 4, size - 1),
    "of a group one larger": lambda rank, size, tp: rank % (size + 1),
}


@pytest.mark.parametrize("source", PLACED)
@pytest.mark.parametrize("formula", WRONG_RANKS)
def test_a_wrong_rank_names_no_source(formula: str, source: Source) -> None:
    answers = [
        WRONG_RANKS[formula](each.tp_rank, each.place(source).size, 8) for each in assignments(Kind.RANK)
    ]
    right = [said(Kind.RANK, each, source) for each in assignments(Kind.RANK)]
    # Not by one drive alone, either.
    assert sum(one != other for one, other in zip(answers, right, strict=True)) >= 2
    found = name(Kind.RANK, list(answers))
    assert found in ("unclear", "constant 0")


WRONG_SIZES: dict[str, Callable[[dict[str, int]], int]] = {
    "the largest": lambda sizes: max(sizes.values()),
    "the smallest": lambda sizes: min(sizes.values()),
    "live, guarded by two": lambda sizes: sizes["live"] if min(sizes["seed"], sizes["ps"]) > 1 else 1,
    "live or else seed": lambda sizes: sizes["live"] if sizes["live"] > 1 else sizes["seed"],
    "live of at least two": lambda sizes: max(2, sizes["live"]),
    "live of at most four": lambda sizes: min(4, sizes["live"]),
    "no more than the seed": lambda sizes: min(sizes["seed"], sizes["live"]),
    "ranks of tp in it": lambda sizes: 8 // sizes["live"],
}


@pytest.mark.parametrize("formula", WRONG_SIZES)
def test_a_size_of_several_sources_names_none(formula: str) -> None:
    sizes = [{source.value: each.place(source).size for source in Source} for each in assignments(Kind.SCALE)]
    assert name(Kind.SCALE, [WRONG_SIZES[formula](each) for each in sizes]) == "unclear"


@pytest.mark.parametrize("kind", FIELD)
@pytest.mark.parametrize(("source", "gate"), list(permutations(Source, 2)))
def test_a_read_that_another_source_guards_is_told_with_it(kind: Kind, source: Source, gate: Source) -> None:
    drives = assignments(kind)
    single = 1 if kind is Kind.SCALE else 0
    answers = [single if each.place(gate).size == 1 else said(kind, each, source) for each in drives]
    assert name(kind, answers) == f"{source} gated by {gate}"
    silent = [None if each.place(gate).size == 1 else said(kind, each, source) for each in drives]
    assert name(kind, silent) == f"{source} gated by {gate}"


@pytest.mark.parametrize("kind", FIELD)
def test_a_consumer_that_uses_nothing_where_its_own_source_is_off_is_named(kind: Kind) -> None:
    drives = assignments(kind)
    answers = [None if each.live.size == 1 else said(kind, each, Source.LIVE) for each in drives]
    assert name(kind, answers) == "live"


@pytest.mark.parametrize("join", [all, any])
@pytest.mark.parametrize(("one", "other"), list(combinations(Source, 2)))
def test_a_gate_of_two_sources_is_none_of_them(join: Callable[..., bool], one: Source, other: Source) -> None:
    answers = [
        join(each.place(source).size > 1 for source in (one, other)) for each in assignments(Kind.GATE)
    ]
    assert name(Kind.GATE, list(answers)) == "unclear"


@pytest.mark.parametrize("source", PLACED)
@pytest.mark.parametrize("least", [3, 5])
def test_a_gate_that_opens_late_is_no_source(source: Source, least: int) -> None:
    answers = [each.place(source).size >= least for each in assignments(Kind.GATE)]
    assert name(Kind.GATE, list(answers)) == "unclear"


@pytest.mark.parametrize("source", PLACED)
def test_a_gate_by_rank_is_no_source(source: Source) -> None:
    answers = [each.place(source).rank > 0 for each in assignments(Kind.GATE)]
    assert name(Kind.GATE, list(answers)) == "unclear"


@given(kind=NUMBERED, data=st.data())
def test_a_number_that_fits_by_coincidence_names_nothing(kind: Kind, data: st.DataObject) -> None:
    """Whatever source is hit in each drive: what is named explains every answer, by the sources alone."""
    drives = assignments(kind)
    read = [data.draw(SOURCES) for _ in drives]
    answers = [said(kind, each, source) for each, source in zip(drives, read, strict=True)]
    explains = [source for source in Source if [said(kind, each, source) for each in drives] == answers]
    found = name(kind, answers)
    assert (found in list(Source)) == bool(explains)
    if explains:
        assert [found] == explains


@given(kind=NUMBERED, source=SOURCES, data=st.data())
def test_one_answer_that_differs_leaves_no_plain_source(
    kind: Kind, source: Source, data: st.DataObject
) -> None:
    """It may look like a read that another source gates, where that source is off in this drive."""
    answers = [said(kind, each, source) for each in assignments(kind)]
    place = data.draw(st.integers(0, len(answers) - 1))
    answers[place] = data.draw(st.integers(0, 17).filter(lambda number: number != answers[place]))
    assert name(kind, answers) not in list(Source)


@given(answers=st.lists(st.booleans(), min_size=8, max_size=8))
def test_a_gate_is_named_by_the_one_source_that_closes_it(answers: list[bool]) -> None:
    drives = assignments(Kind.GATE)
    closes = [
        source.value
        for source in Source
        if all(answer == (each.place(source).size != 1) for answer, each in zip(answers, drives, strict=True))
    ]
    steady = [f"constant {answers[0]}"] if len(set(answers)) == 1 else ["unclear"]
    assert [name(Kind.GATE, list(answers))] == (closes or steady)


def test_a_gate_is_no_number() -> None:
    assert (
        name(Kind.GATE, [int(said(Kind.GATE, each, Source.LIVE)) for each in assignments(Kind.GATE)])
        == "unclear"
    )
    assert name(Kind.SCALE, [True] * 11) == "constant True"


def test_nothing_where_there_was_nothing() -> None:
    assert name(Kind.SCALE, [None] * 11) == "none"
    assert name(Kind.SCALE, [8, None, 2, *[1] * 8]) == "unclear"


def test_a_fact_is_its_own_name() -> None:
    assert name(Kind.FACT, ["attn_dcp_size"]) == "attn_dcp_size"


@pytest.mark.parametrize(
    ("has_ps", "source", "told"),
    [(True, "live", True), (False, "live", False), (False, "ps", True), (False, "live gated by ps", True)],
)
def test_a_release_without_a_ps_says_nothing_of_it_unless_one_is_read(
    has_ps: bool, source: str, told: bool
) -> None:
    observed = tuple(Observed(each, each.live.size) for each in assignments(Kind.SCALE))
    seen = Observation(
        consumer=fake_consumer("pool.size"), role=Role.TARGET, source=source, observed=observed, has_ps=has_ps
    )
    first = seen.numbers[0]
    assert first == {"tp_rank": 7, "seed": 8, "live": 2, "copy": 16, "used": 2} | ({"ps": 4} if told else {})
