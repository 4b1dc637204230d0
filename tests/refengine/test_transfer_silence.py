"""When a prefill rank has waited too long, and in which words: pure functions of the clock."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pd_pairs import SUPPORTED

from harness.refengine.transfer.sending import Chunk, Link, Pair, Room
from harness.refengine.transfer.silence import SilenceClock, overdue_room
from harness.refengine.transfer.transports.base import SlotSizes
from harness.refengine.transfer.transports.tcp import TcpWriter

LIMIT = 10.0


def a_link(rank: int, *, destinations: Iterable[int] = (0,), moved: float = 0.0) -> Link:
    return Link(
        identity=b"",
        fd=0,
        tp_rank=rank,
        shape=SUPPORTED[0].shapes()[1],
        route=None,
        destinations=frozenset(destinations),
        writer=TcpWriter(SlotSizes(slots=2, slot_bytes=100)),
        form=None,
        moved=moved,
    )


def a_room(*links: Link, bound: bool) -> Room:
    room = Room(rid="r", number=1, prompt_len=8, opened=0.0, bound=bound)
    layout = SUPPORTED[0].shapes()[0].layout()
    room.pairs = {link.tp_rank: Pair(room=room, link=link, layout=layout, since=0.0) for link in links}
    return room


@pytest.mark.parametrize(
    ("came", "why"),
    [
        ([], "no decode rank asked for it for 10 s"),
        ([2], "decode ranks 0, 1, 3 did not ask for it for 10 s"),
        ([0, 1, 3], "decode rank 2 did not ask for it for 10 s"),
    ],
)
def test_who_has_not_registered_is_told(came: list[int], why: str) -> None:
    room = a_room(*(a_link(rank, destinations=range(4)) for rank in came), bound=False)
    assert overdue_room(room, registered=0.0, now=LIMIT, limit=LIMIT) is None
    assert overdue_room(room, registered=0.0, now=LIMIT + 0.1, limit=LIMIT) == why
    # The decode engine takes others on meanwhile: this one waits for its turn.
    assert overdue_room(room, registered=5.0, now=LIMIT + 0.1, limit=LIMIT) is None


def test_a_prompt_that_is_being_computed_has_no_limit() -> None:
    assert overdue_room(a_room(a_link(0), bound=True), registered=0.0, now=1e9, limit=LIMIT) is None


def test_a_decode_rank_that_takes_nothing_is_told() -> None:
    link = a_link(0, moved=3.0)
    room = a_room(link, bound=True)
    link.work.append(room.pairs[0])
    assert overdue_room(room, registered=0.0, now=13.0, limit=LIMIT) is None
    why = overdue_room(room, registered=0.0, now=13.1, limit=LIMIT)
    assert why == "decode rank 0 took none of its rows for 10 s"


def test_a_decode_rank_that_confirms_nothing_is_told() -> None:
    link = a_link(0)
    room = a_room(link, bound=True)
    pair = room.pairs[0]
    pair.ended, pair.since, pair.rows_sent = True, 3.0, 7
    assert overdue_room(room, registered=0.0, now=13.0, limit=LIMIT) is None
    why = overdue_room(room, registered=0.0, now=13.1, limit=LIMIT)
    assert why == "decode rank 0 did not confirm its 7 rows for 10 s"
    pair.done = True
    assert overdue_room(room, registered=0.0, now=13.1, limit=LIMIT) is None


def test_an_empty_pair_waits_for_no_slot() -> None:
    room = a_room(a_link(0), bound=True)
    room.chunks.append(Chunk(start=0, stop=8, pages=(1,)))
    assert not room.pairs[0].has_rows()
    assert room.pairs[0].waiting_blocks() == 0


@given(limit=st.floats(0.01, 1000), looks=st.lists(st.floats(0, 1), max_size=30))
def test_an_excess_is_seen_soon(limit: float, looks: list[float]) -> None:
    clock, now = SilenceClock(limit), 0.0
    last = None
    for wait in looks:
        if clock.due(now):
            last = now
        assert last is not None
        assert now - last <= min(limit / 4, 1.0)
        now += min(wait, clock.until_next_ms(now) / 1000)
