"""A prefill rank whose decode rank is in the hand of the test, or of another engine: who is refused, and how."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from transfer_world import ROW_BYTES, PrefillRank, RawDecodeRank, World, few_slots, raw_decode_rank, small

from harness.refengine.seams import patch
from harness.refengine.transfer.events import Bound, Failed
from harness.refengine.transfer.packing import TRANSFER_POSITIONS
from harness.refengine.transfer.wire import Cancel, Credit, Done, End, Refuse, Register


@pytest.fixture
def world() -> Iterator[World]:
    with few_slots() as world:
        yield world


@pytest.fixture
def raw() -> Iterator[tuple[PrefillRank, RawDecodeRank]]:
    with raw_decode_rank() as both:
        yield both


def test_a_second_decode_engine_is_turned_away(raw: tuple[PrefillRank, RawDecodeRank]) -> None:
    prefill, decode = raw
    decode.greet()
    decode.say(Register(room=1, prompt_len=8), Register(room=1, prompt_len=8))
    prefill.sender.open("r", room=1, prompt_len=8)
    assert prefill.hears() == Bound("r")
    # Which of the two was heard first, before the room was open or after, makes no difference to the first.
    decode.say(Register(room=1, prompt_len=8))
    assert decode.hears() == Cancel(room=1, why="room 1 is taken by another decode engine")
    assert prefill.sender.stats()["open"] == 1


def test_prompts_of_unequal_length_fail_with_both(world: World) -> None:
    world.open("r", room=1, prompt=world.prompt(20))
    world.expect("r", room=1, prompt=world.prompt(21), pages=(3, 4))
    why = "decode rank 0 expects a prompt of 21 tokens, but prefill rank 0 has one of 20"
    assert world.prefill[0].hears() == Failed("r", why)
    assert world.decode[0].hears() == Failed("r", why)


@pytest.mark.parametrize(
    ("fewer", "why"),
    [
        (2, "20 rows were awaited from prefill rank 0, 18 arrived, and it says that it sent 18"),
        (-2, "prefill rank 0 sent more than the 20 rows awaited from it"),
    ],
)
def test_rows_that_are_missing_or_too_many_fail_the_room(world: World, fewer: int, why: str) -> None:
    prompt = world.prompt(20)
    world.open("r", room=1, prompt=prompt)
    world.expect("r", room=1, prompt=prompt, pages=(3, 4))
    before = patch(
        TRANSFER_POSITIONS, lambda prefill, decode, *, start, stop, **ranks: torch.arange(start, stop - fewer)
    )
    try:
        world.send("r", prompt, (1, 2), chunk=20)
        assert world.decode[0].hears() == Failed("r", why)
    finally:
        patch(TRANSFER_POSITIONS, before)
    assert world.prefill[0].hears() == Bound("r")
    assert world.prefill[0].hears() == Failed("r", f"decode rank 0 gave it up: {why}")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"nonce": "older"},
            "this is engine launched, not older; ask its HTTP port for /disaggregation again",
        ),
        ({"tp_rank": 3}, "prefill rank 0 sends to decode ranks [0], not to 3"),
        ({"slots": 0}, "slots of an offer is 0; expected a number from 1"),
        ({"slot_bytes": ROW_BYTES - 1}, f"slots of {ROW_BYTES - 1} B hold no row of {ROW_BYTES} B"),
        ({"offer": {}}, "slots of an offer is None; expected a number from 1"),
        ({"shape": {}}, "the shape of an engine lacks mode"),
    ],
)
def test_who_cannot_be_served_is_told_why(
    raw: tuple[PrefillRank, RawDecodeRank], changes: dict[str, Any], why: str
) -> None:
    prefill, decode = raw
    decode.greet(**changes)
    refusal = decode.hears()
    assert isinstance(refusal, Refuse)
    assert refusal.why.startswith(why)
    assert prefill.told.empty()


def test_a_pair_that_does_not_fit_is_refused(raw: tuple[PrefillRank, RawDecodeRank]) -> None:
    _, decode = raw
    decode.greet(shape={**decode.shape.to_dict(), "page_size": 32})
    assert decode.hears() == Refuse(
        why="--page-size is 16 on the prefill side and 32 on the decode side; both must be the same"
    )


def test_a_refused_decode_rank_fails_its_requests(world: World) -> None:
    prompt = world.prompt(20)
    world.prefill[0].sender._config = small(nonce="launched anew")[0]
    world.expect("r", room=1, prompt=prompt, pages=(3, 4))
    failed = world.decode[0].hears()
    assert isinstance(failed, Failed)
    assert "this is engine launched anew, not launched" in failed.why


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ([Credit(slot=0)], "slot 0 is granted, but was not in use"),
        ([Credit(slot=99)], "slot 99 is granted, but was not in use"),
        ([Done(room=1)], "room 1 is said to be done, but has not ended"),
        ([End(room=1, rows=0)], "a decode rank says no End"),
    ],
)
def test_a_decode_rank_that_makes_no_sense_is_cut_off(
    raw: tuple[PrefillRank, RawDecodeRank], said: list[Any], why: str
) -> None:
    prefill, decode = raw
    decode.greet()
    decode.say(Register(room=1, prompt_len=8))
    prefill.sender.open("r", room=1, prompt_len=8)
    assert prefill.hears() == Bound("r")
    decode.say(*said)
    assert prefill.hears() == Failed("r", f"decode rank 0 does not keep to the protocol: {why}")
    assert {type(decode.hears()) for _ in range(2)} == {Refuse, Cancel}


def test_noise_on_the_port_disturbs_nobody(raw: tuple[PrefillRank, RawDecodeRank]) -> None:
    prefill, decode = raw
    decode.socket.send_multipart([b"noise", b"more"])
    assert isinstance(decode.hears(), Refuse)
    decode.greet()
    decode.say(Register(room=1, prompt_len=8))
    prefill.sender.open("r", room=1, prompt_len=8)
    assert prefill.hears() == Bound("r")
