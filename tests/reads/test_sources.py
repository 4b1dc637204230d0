"""Naming the source of a number: it explains every answer, and no coincidence counts."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.reads.registry import Kind
from harness.reads.sources import Assignment, Observed, Place, Source, assignments, name_source

FIELD = {Kind.SCALE: "size", Kind.RANK: "rank"}
NUMBERED = st.sampled_from(list(FIELD))
SOURCES = st.sampled_from(list(Source))


def said(kind: Kind, assignment: Assignment, source: Source) -> object:
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
def test_in_each_drive_every_source_says_another_number(kind: Kind) -> None:
    for each in assignments(kind):
        assert len({said(kind, each, source) for source in Source}) == len(Source)


@pytest.mark.parametrize("kind", [Kind.SCALE, Kind.RANK, Kind.GATE])
def test_no_two_sources_give_the_same_answers_throughout(kind: Kind) -> None:
    drives = assignments(kind)
    for one, other in combinations(Source, 2):
        assert [said(kind, each, one) for each in drives] != [said(kind, each, other) for each in drives]


def test_a_rank_is_that_of_its_size_and_no_other_source_s() -> None:
    for each in assignments(Kind.RANK):
        for source in (Source.SEED, Source.PS, Source.LIVE):
            place = each.place(source)
            assert place.rank == 7 % place.size


@given(kind=NUMBERED, read=st.lists(SOURCES, min_size=3, max_size=3))
def test_a_number_that_fits_by_coincidence_names_nothing(kind: Kind, read: list[Source]) -> None:
    """Whatever source is hit in each drive: only one that is hit in all of them is named."""
    answers = [said(kind, each, source) for each, source in zip(assignments(kind), read, strict=True)]
    steady = len(set(read)) == 1
    found = name(kind, answers)
    assert (found in list(Source)) == steady
    if steady:
        assert found == read[0].value


@given(kind=NUMBERED, answers=st.lists(st.sampled_from([0, 1, 2, 3, 4, 7, 8, 16]), min_size=3, max_size=3))
def test_any_answers_are_named_as_an_exhaustive_search_names_them(kind: Kind, answers: list[int]) -> None:
    told = {source.value: [said(kind, each, source) for each in assignments(kind)] for source in Source}
    explains = [source for source, numbers in told.items() if numbers == answers]
    found = name(kind, list(answers))
    if explains:
        assert [found] == explains
    else:
        assert found == (f"constant {answers[0]}" if len(set(answers)) == 1 else "unclear")


@given(answers=st.lists(st.booleans(), min_size=4, max_size=4))
def test_a_gate_is_named_by_the_one_source_that_closes_it(answers: list[bool]) -> None:
    found = name(Kind.GATE, list(answers))
    if answers.count(False) == 1:
        assert found == list(Source)[answers.index(False)].value
    elif len(set(answers)) == 1:
        assert found == f"constant {answers[0]}"
    else:
        assert found == "unclear"


def test_a_gate_is_no_number() -> None:
    assert name(Kind.GATE, [0, 1, 1, 1]) == "unclear"
    assert name(Kind.SCALE, [True, True, True]) == "constant True"


def test_nothing_where_there_was_nothing() -> None:
    assert name(Kind.SCALE, [None, None, None]) == "none"
    assert name(Kind.SCALE, [8, None, 2]) == "unclear"


def test_a_fact_is_its_own_name() -> None:
    assert name(Kind.FACT, ["attn_dcp_size"]) == "attn_dcp_size"
