"""Handovers out of the ordinary, in one process: order, back-pressure, giving up, and peers that make no sense."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transfer_world import (
    FIRST,
    ROW_BYTES,
    PrefillRank,
    Prompt,
    RawDecodeRank,
    World,
    arrived,
    await_that,
    few_slots,
    raw_decode_rank,
    small,
)

from harness.errors import UsageError
from harness.refengine.config import TransferBackend
from harness.refengine.transfer.events import Arrived, Bound, Failed, Sent
from harness.refengine.transfer.wire import Block, Cancel, Credit, Register


@pytest.fixture
def world() -> Iterator[World]:
    with few_slots() as world:
        yield world


@pytest.fixture
def raw() -> Iterator[tuple[PrefillRank, RawDecodeRank]]:
    with raw_decode_rank() as both:
        yield both


def test_a_decode_rank_may_come_before_the_room_is_open(world: World) -> None:
    prompt = world.prompt(20)
    world.expect("r", room=1, prompt=prompt, pages=(3, 4))
    # Over the same connection, so that the sender has surely heard the first by the time it binds the second.
    world.expect("other", room=2, prompt=prompt, pages=(5, 6))
    world.open("other", room=2, prompt=prompt)
    assert world.prefill[0].hears() == Bound("other")
    world.open("r", room=1, prompt=prompt)
    assert world.prefill[0].hears() == Bound("r")


def test_what_is_sent_before_it_is_bound_waits_for_that(world: World) -> None:
    prompt = world.prompt(20)
    world.open("r", room=1, prompt=prompt)
    world.send("r", prompt, (1, 2), chunk=7)
    assert world.prefill[0].sender.stats()["rows_sent"] == 0
    world.expect("r", room=1, prompt=prompt, pages=(3, 4))
    assert world.decode[0].hears() == arrived("r")
    world.decode[0].assert_holds([(prompt, (3, 4), 0)])


def test_nothing_goes_to_some_before_all_have_come() -> None:
    prefill, decode = small()
    with World(prefill, replace(decode, tp=2, dcp=2)) as world:
        prompt = world.prompt(20)
        first, second = world.decode
        world.open("r", room=1, prompt=prompt)
        expected: dict[str, Any] = {
            "room": 1,
            "index": 0,
            "prompt_len": 20,
            "pages": (3,),
            "peer": world.peer,
        }
        first.receiver.expect("r", **expected)
        # By the time this is bound, the sender has heard all that the first rank said before.
        world.expect("other", room=2, prompt=prompt, pages=(4,))
        world.open("other", room=2, prompt=prompt)
        assert world.prefill[0].hears() == Bound("other")
        world.send("r", prompt, (1, 2), chunk=20)
        world.send("other", prompt, (1, 2), chunk=20)
        assert [rank.hears() for rank in world.decode] == [arrived("other"), Arrived("other")]
        assert first.receiver.stats()["rows_received"] == 10
        second.receiver.expect("r", **expected)
        assert [rank.hears() for rank in world.decode] == [arrived("r"), Arrived("r")]


def test_chunks_go_before_the_last_one_is_there(world: World) -> None:
    prompt = world.prompt(30)
    prefill, decode = world.prefill[0], world.decode[0]
    world.open("r", room=1, prompt=prompt)
    world.expect("r", room=1, prompt=prompt, pages=(3, 4), index=9)
    prefill.fill(prompt, (1, 2))
    prefill.sender.chunk("r", start=0, stop=13, pages=(1,))
    await_that(lambda: decode.receiver.stats()["rows_received"] == 13, decode)
    with decode.receiver.lock:
        assert [row[2] for row in decode.pool.held_rows()] == list(range(13))
    prefill.sender.chunk("r", start=13, stop=30, pages=(1, 2))
    prefill.sender.finish("r", first=FIRST)
    assert decode.hears() == arrived("r")
    decode.assert_holds([(prompt, (3, 4), 9)])


def test_handovers_share_a_link(world: World) -> None:
    prompts = [world.prompt(16, seed) for seed in range(4)]
    for nth, prompt in enumerate(prompts):
        world.expect(f"r{nth}", room=nth, prompt=prompt, pages=(nth + 5,), index=nth)
        world.open(f"r{nth}", room=nth, prompt=prompt)
    for nth, prompt in enumerate(prompts):
        world.send(f"r{nth}", prompt, (nth + 1,), chunk=5)
    ended = [world.decode[0].hears() for _ in prompts]
    assert sorted(ended, key=lambda event: event.rid) == [arrived(f"r{nth}") for nth in range(4)]
    world.decode[0].assert_holds([(prompt, (nth + 5,), nth) for nth, prompt in enumerate(prompts)])


def test_without_credit_only_as_many_blocks_go_as_there_are_slots(
    raw: tuple[PrefillRank, RawDecodeRank],
) -> None:
    prefill, decode = raw
    prompt = Prompt.draw(prefill.shape, 160, 0)
    pages = tuple(range(1, 11))
    decode.greet(slots=2, slot_bytes=10 * ROW_BYTES)
    decode.say(Register(room=1, prompt_len=160))
    prefill.sender.open("r", room=1, prompt_len=160)
    assert prefill.hears() == Bound("r")
    prefill.fill(prompt, pages)
    prefill.sender.chunk("r", start=0, stop=160, pages=pages)
    prefill.sender.finish("r", first=FIRST)
    blocks = [decode.hears(), decode.hears()]
    assert blocks == [Block(room=1, slot=slot, rows=10, size=10 * ROW_BYTES) for slot in (0, 1)]
    # The first answer to this comes after all that went before it.
    decode.say(Register(room=2, prompt_len=1))
    prefill.sender.open("s", room=2, prompt_len=1)
    assert prefill.hears() == Bound("s")
    assert decode.silent()
    stats = prefill.sender.stats()
    assert (stats["rows_sent"], stats["waiting_blocks"]) == (20, 14)
    decode.say(Credit(slot=1))
    assert decode.hears() == Block(room=1, slot=1, rows=10, size=10 * ROW_BYTES)
    assert prefill.sender.stats()["waiting_blocks"] == 13


def test_nothing_is_read_of_a_room_that_was_dropped(raw: tuple[PrefillRank, RawDecodeRank]) -> None:
    prefill, decode = raw
    decode.greet(slots=1, slot_bytes=8 * ROW_BYTES)
    decode.say(Register(room=1, prompt_len=32))
    prefill.sender.open("r", room=1, prompt_len=32)
    assert prefill.hears() == Bound("r")
    prefill.sender.chunk("r", start=0, stop=32, pages=(1, 2))
    assert isinstance(decode.hears(), Block)
    prefill.sender.drop("r", why="the client is gone")
    prefill.pool.kv[:] = float("nan")
    decode.say(Credit(slot=0))
    assert decode.hears() == Cancel(room=1, why="prefill rank 0 gave it up: the client is gone")
    # Who comes late is told the same.
    decode.say(Register(room=1, prompt_len=32))
    assert decode.hears() == Cancel(room=1, why="prefill rank 0 gave it up: the client is gone")
    assert prefill.sender.stats()["rows_sent"] == 8
    assert prefill.sender.stats()["open"] == 0


STAGES = ["open", "registered", "chunk", "half", "finished"]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(side=st.sampled_from(["prefill", "decode"]), stage=st.sampled_from(STAGES), length=st.integers(1, 90))
def test_after_a_drop_the_pool_is_left_alone(side: str, stage: str, length: int) -> None:
    with World(*small(), slots=1, slot_bytes=ROW_BYTES) as world:
        prompt = world.prompt(length)
        prefill, decode = world.prefill[0], world.decode[0]
        ours, theirs = (1, 2, 3, 4, 5, 6), (7, 8, 9, 10, 11, 12)
        prefill.fill(prompt, ours)
        world.open("r", room=1, prompt=prompt)
        if stage != "open":
            world.expect("r", room=1, prompt=prompt, pages=theirs)
            assert prefill.hears() == Bound("r")
        if stage in ("chunk", "half", "finished"):
            prefill.sender.chunk("r", start=0, stop=length, pages=ours)
        if stage == "half":
            await_that(lambda: decode.receiver.stats()["rows_received"] >= length // 2, decode)
        if stage == "finished":
            prefill.sender.finish("r", first=FIRST)
        if side == "prefill":
            prefill.sender.drop("r", why="enough")
            prefill.pool.free_pages(ours)
            # Whatever still arrives was read before.
            follow_up(world, decode, theirs, prompt)
        else:
            decode.receiver.drop("r", why="enough")
            decode.pool.free_pages(theirs)
            follow_up(world, decode, theirs, None)
        assert decode.pool.check_poison()


def follow_up(world: World, decode: Any, pages: tuple[int, ...], prompt: Prompt | None) -> None:
    """Hand another prompt over, behind all that is still under way; then look at what there is of the first."""
    decode.receiver.drop("r")
    decode.pool.free_pages(pages)
    other = world.prompt(3, seed=5)
    world.open("after", room=2, prompt=other)
    world.expect("after", room=2, prompt=other, pages=(1,), index=4)
    world.send("after", other, (1,), chunk=3)
    while decode.hears() != arrived("after"):
        pass
    decode.assert_holds([(other, (1,), 4)])


def test_a_decode_rank_that_gives_up_ends_the_room_with_its_reason(world: World) -> None:
    prompt = world.prompt(20)
    world.open("r", room=1, prompt=prompt)
    world.expect("r", room=1, prompt=prompt, pages=(3, 4))
    assert world.prefill[0].hears() == Bound("r")
    world.decode[0].receiver.drop("r", why="the client is gone")
    assert world.prefill[0].hears() == Failed("r", "decode rank 0 gave it up: the client is gone")
    assert world.prefill[0].sender.stats()["open"] == 0


def test_a_room_given_up_before_it_was_open_fails_when_it_is(world: World) -> None:
    prompt = world.prompt(20)
    world.expect("r", room=1, prompt=prompt, pages=(3, 4))
    world.expect("other", room=2, prompt=prompt, pages=(5, 6))
    world.open("other", room=2, prompt=prompt)
    assert world.prefill[0].hears() == Bound("other")
    world.decode[0].receiver.drop("r", why="the client is gone")
    world.decode[0].receiver.drop("other", why="this too")
    assert world.prefill[0].hears() == Failed("other", "decode rank 0 gave it up: this too")
    world.open("r", room=1, prompt=prompt)
    assert world.prefill[0].hears() == Failed("r", "decode rank 0 gave it up: the client is gone")


def test_a_failure_on_one_rank_reaches_all_that_share_the_room() -> None:
    with World(*small(tp=2)) as world:
        prompt = world.prompt(20)
        world.open("r", room=1, prompt=prompt)
        world.expect("r", room=1, prompt=prompt, pages=(3, 4))
        for rank in world.prefill:
            assert rank.hears() == Bound("r")
        world.prefill[1].sender.drop("r", why="enough")
        assert world.decode[1].hears() == Failed("r", "prefill rank 1 gave it up: enough")
        world.decode[0].receiver.drop("r", why="another rank failed")
        assert world.prefill[0].hears() == Failed("r", "decode rank 0 gave it up: another rank failed")


def test_a_room_is_one_request_at_a_time(world: World) -> None:
    prompt = world.prompt(20)
    world.open("r", room=1, prompt=prompt)
    world.open("s", room=1, prompt=prompt)
    assert world.prefill[0].hears() == Failed("s", "room 1 is in use by another request")
    world.expect("r", room=1, prompt=prompt, pages=(3, 4))
    world.expect("s", room=1, prompt=prompt, pages=(5, 6))
    assert world.decode[0].hears() == Failed("s", "room 1 is in use by another request")
    world.send("r", prompt, (1, 2), chunk=20)
    assert world.decode[0].hears() == arrived("r")
    # And again, once it is over.
    assert [world.prefill[0].hears() for _ in range(2)] == [Bound("r"), Sent("r")]
    world.open("t", room=1, prompt=prompt)
    world.expect("t", room=1, prompt=prompt, pages=(7, 8))
    assert world.prefill[0].hears() == Bound("t")


def test_silence_fails_a_room_that_nobody_asks_for() -> None:
    with World(*small(transfer_timeout=0.2)) as world:
        world.open("r", room=1, prompt=world.prompt(8))
        assert world.prefill[0].hears() == Failed("r", "no decode rank asked for it for 0.2 s")


def test_silence_of_a_prefill_rank_fails_the_place() -> None:
    with World(*small(transfer_timeout=0.2)) as world:
        world.expect("r", room=1, prompt=world.prompt(8), pages=(1,))
        why = "prefill rank 0 said nothing for 0.2 s; 0 of 8 rows have arrived from it"
        assert world.decode[0].hears() == Failed("r", why)


def test_a_prefill_rank_that_is_not_there_fails_the_place(world: World) -> None:
    peer = world.peer
    world.prefill[0].sender.close()
    world.decode[0].receiver.expect("r", room=1, index=0, prompt_len=8, pages=(1,), peer=peer)
    where = f"prefill rank 0 at 127.0.0.1:{peer.ports[0]}"
    assert world.decode[0].hears() == Failed("r", f"{where} has ended or cannot be reached")


def test_a_host_that_is_none_fails_the_place(world: World) -> None:
    peer = replace(world.peer, host="no such host!")
    world.decode[0].receiver.expect("r", room=1, index=0, prompt_len=8, pages=(1,), peer=peer)
    failed = world.decode[0].hears()
    assert isinstance(failed, Failed)
    assert "no such host!" in failed.why


def test_a_host_to_listen_on_that_is_none_is_refused() -> None:
    def refused() -> None:
        with pytest.raises(UsageError, match=r"--host 192\.0\.2\.1: no port for handing KV over can be had"):
            World(*small(host="192.0.2.1"))

    refused()
    before = left()
    refused()
    assert left() == before


@pytest.mark.parametrize("transport", [TransferBackend.SHM, TransferBackend.TCP])
def test_nothing_is_left_after_close(transport: TransferBackend) -> None:
    hand_one_over(transport)
    before = left()
    for _ in range(3):
        hand_one_over(transport)
    assert left() == before


def left() -> tuple[set[str], int, int]:
    """Threads, mapped shared memory and descriptors of this process."""
    names = {thread.name for thread in threading.enumerate()}
    maps = Path("/proc/self/maps").read_text().count("memfd:harness-kv")
    return names, maps, len(list(Path("/proc/self/fd").iterdir()))


def hand_one_over(transport: TransferBackend) -> None:
    with World(*small(disaggregation_transfer_backend=transport)) as world:
        prompt = world.prompt(40)
        world.open("r", room=1, prompt=prompt)
        world.expect("r", room=1, prompt=prompt, pages=(3, 4, 5))
        world.send("r", prompt, (1, 2, 3), chunk=16)
        assert world.decode[0].hears() == arrived("r")
