"""Ranks as processes that are killed or stopped in the middle: every room ends on every rank that is left."""

from __future__ import annotations

import itertools
import random
import time
from typing import Any

import pytest
from transfer_processes import GO_ON, KILL, STOP, Processes, RankProcess
from transfer_world import TRANSPORTS, Prompt, arrived, needs_nixl, small

from harness.refengine.config import DisaggregationMode, EngineConfig, TransferBackend
from harness.refengine.transfer.events import Arrived, Bound, Failed, HandoverEvent, Sent

# Long enough that a block a row takes a while: a prompt that fills pages 1 to 9 of one rank.
LENGTH = 140
ROOMS = 3
# Of 30 pages: each room has its own.
PAGES = [tuple(range(1 + 9 * room, 10 + 9 * room)) for room in range(ROOMS)]


def pair(transport: TransferBackend, **changes: Any) -> tuple[EngineConfig, EngineConfig]:
    """Two prefill ranks that each have one KV head, and the same on the decode side, which shares out tokens."""
    both = {"disaggregation_transfer_backend": transport, **changes}
    prefill = EngineConfig(disaggregation_mode=DisaggregationMode.PREFILL, tp=2, **both)
    return prefill, EngineConfig(disaggregation_mode=DisaggregationMode.DECODE, tp=2, dcp=2, **both)


def begin_all(processes: Processes, length: int = LENGTH) -> list[Prompt]:
    prompts = [Prompt.draw(processes.peer.shape, length, seed) for seed in range(ROOMS)]
    for room, prompt in enumerate(prompts):
        processes.begin(f"r{room}", room=room, prompt=prompt, here=PAGES[room], there=PAGES[room])
    return prompts


def ends(rank: RankProcess) -> dict[str, HandoverEvent]:
    """How each room ended on a rank; it must end once."""
    ended: dict[str, HandoverEvent] = {}
    while len(ended) < ROOMS:
        event = rank.hears()
        if not isinstance(event, Bound):
            assert event.rid not in ended
            ended[event.rid] = event
    return ended


def blames_the_dead(why: str) -> bool:
    # NIXL may notice before the connection does.
    return "has ended or cannot be reached" in why or "cannot write to decode rank" in why


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_between_processes_every_row_arrives(transport: TransferBackend) -> None:
    with Processes(*pair(transport), num_pages=30, slots=4, slot_bytes=1 << 14) as processes:
        prompts = begin_all(processes)
        assert [set(map(type, ends(rank).values())) for rank in processes.prefill] == [{Sent}] * 2
        assert [set(map(type, ends(rank).values())) for rank in processes.decode] == [{Arrived}] * 2
        for rank in processes.decode:
            rank.do("", "assert_holds", held=list(zip(prompts, PAGES, range(ROOMS), strict=True)))


# Four ranks with NIXL take seconds to start, so there is one kill of each side: others kill at other moments.
KILLS = [
    *itertools.product([TransferBackend.SHM, TransferBackend.TCP], range(3)),
    pytest.param(TransferBackend.NIXL, 0, marks=needs_nixl),
]


@pytest.mark.parametrize(("transport", "seed"), KILLS)
@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_when_a_rank_is_killed_every_room_ends_on_all_others(
    transport: TransferBackend, side: str, seed: int
) -> None:
    drawn = random.Random(seed)
    with Processes(*pair(transport), num_pages=30, slots=1, slot_bytes=1) as processes:
        begin_all(processes)
        victims = processes.prefill if side == "prefill" else processes.decode
        others = processes.decode if side == "prefill" else processes.prefill
        victim = victims[drawn.randrange(len(victims))]
        # From outside, at any moment of the whole transfer.
        time.sleep(drawn.uniform(0.0, 0.1))
        victim.signal(KILL)
        for rank in others:
            for event in ends(rank).values():
                assert not isinstance(event, Failed) or blames_the_dead(event.why)
        for rank in victims:
            if rank is not victim:
                ends(rank)
        survivors = [rank for rank in processes.ranks if rank is not victim]
        assert [rank.do("end", "stats")["open"] for rank in survivors] == [0] * len(survivors)
        for rank in survivors:
            for pages in PAGES:
                rank.do("", "free", pages=pages)
            rank.do("", "assert_holds", held=[])


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_when_a_rank_is_stopped_every_room_ends_in_time(transport: TransferBackend, side: str) -> None:
    with Processes(*pair(transport, transfer_timeout=1.0), num_pages=30, slots=1, slot_bytes=1) as processes:
        stopped = (processes.prefill if side == "prefill" else processes.decode)[1]
        others = processes.decode if side == "prefill" else processes.prefill
        begin_all(processes)
        stopped.signal(STOP)
        # What was on its way may have sufficed.
        told = [event.why for rank in others for event in ends(rank).values() if isinstance(event, Failed)]
        for why in told:
            assert "rank 1" in why
            assert "for 1 s" in why or "gave it up" in why
        freed = [rank for rank in processes.ranks if rank is not stopped]
        for rank in freed:
            for pages in PAGES:
                for room in range(ROOMS):
                    rank.do("end", "drop", rid=f"r{room}")
                rank.do("", "free", pages=pages)
        stopped.signal(GO_ON)
        # It is told that all is over, and what it still sends goes nowhere.
        ends(stopped)
        for rank in freed:
            rank.do("", "assert_holds", held=[])


def test_a_restarted_prefill_rank_is_used_again() -> None:
    prefill, decode = small()
    with Processes(prefill, decode, num_pages=30) as processes:
        peer = processes.peer
        begin_all(processes, 20)
        ends(processes.decode[0])
        processes.prefill[0].signal(KILL)
        with Processes(prefill, decode, num_pages=30) as again:
            processes.prefill, processes.peer = again.prefill, again.peer
            assert peer != again.peer
            prompt = Prompt.draw(again.peer.shape, 20, 9)
            processes.begin("new", room=9, prompt=prompt, here=(1, 2), there=(28, 29))
            assert processes.decode[0].hears() == arrived("new")
            processes.decode[0].do("", "free", pages=PAGES[0] + PAGES[1] + PAGES[2])
