"""A decode rank whose prefill rank is in the hand of the test: what makes no sense harms nobody else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import zmq
from transfer_world import (
    FIRST,
    PATIENCE_S,
    RAW_LENGTH,
    ROW_BYTES,
    DecodeRank,
    PrefillRank,
    RawPrefillRank,
    arrived,
    raw_prefill_rank,
    small,
)

from harness.refengine.config import TransferBackend
from harness.refengine.transfer.events import Failed, PeerInfo
from harness.refengine.transfer.wire import (
    Block,
    Cancel,
    Credit,
    Done,
    End,
    Hello,
    Message,
    Refuse,
    decode,
)


@pytest.fixture
def raw() -> Iterator[RawPrefillRank]:
    with raw_prefill_rank() as raw:
        raw.expect()
        yield raw


def test_blocks_are_put_in_the_order_they_come(raw: RawPrefillRank) -> None:
    for start, stop in ((0, 3), (3, 8)):
        raw.say(*raw.block(start, stop))
        assert raw.hears() == Credit(slot=0)
    raw.say(End(room=1, rows=RAW_LENGTH, first=FIRST))
    assert raw.hears() == Done(room=1)
    assert raw.decode.hears() == arrived("r")
    raw.decode.assert_holds([(raw.prompt, (2,), 5)])


def test_a_block_of_a_room_that_is_unknown_goes_nowhere_but_is_granted(raw: RawPrefillRank) -> None:
    raw.say(*raw.block(0, 8, room=99, slot=2))
    assert raw.hears() == Credit(slot=2)
    raw.say(End(room=99, rows=8, first=FIRST))
    raw.say(Cancel(room=99, why="whatever"))
    raw.decode.receiver.drop("r", why="enough")
    assert raw.hears() == Cancel(room=1, why="enough")
    assert raw.decode.told.empty()
    raw.decode.assert_holds([])


@pytest.mark.parametrize(
    ("rows", "size", "why"),
    [
        (2, ROW_BYTES * 3, f"prefill rank 0 sent 2 rows in {ROW_BYTES * 3} B, of another shape"),
        (9, ROW_BYTES * 9, "prefill rank 0 sent more than the 8 rows awaited from it"),
    ],
)
def test_a_block_that_does_not_fit_fails_its_request_alone(
    raw: RawPrefillRank, rows: int, size: int, why: str
) -> None:
    raw.expect("other", room=2)
    raw.say(Block(room=1, slot=0, rows=rows, size=size), bytes(size))
    assert raw.decode.hears() == Failed("r", why)
    assert {raw.hears() for _ in range(2)} == {Credit(slot=0), Cancel(room=1, why=why)}
    raw.say(*raw.block(0, 8, room=2))
    raw.say(End(room=2, rows=RAW_LENGTH, first=FIRST))
    assert raw.decode.hears() == arrived("other")
    raw.decode.assert_holds([(raw.prompt, (2,), 5)])


def test_an_end_with_other_rows_fails_with_all_numbers(raw: RawPrefillRank) -> None:
    raw.say(*raw.block(0, 5))
    raw.say(End(room=1, rows=7))
    assert raw.decode.hears() == Failed(
        "r", "8 rows were awaited from prefill rank 0, 5 arrived, and it says that it sent 7"
    )


def test_a_block_after_the_end_is_no_more_awaited(raw: RawPrefillRank) -> None:
    raw.say(*raw.block(0, 8))
    raw.say(End(room=1, rows=8, first=FIRST))
    assert raw.decode.hears() == arrived("r")
    raw.decode.pool.free_pages([2])
    raw.say(*raw.block(0, 8))
    assert [raw.hears() for _ in range(3)] == [Credit(slot=0), Done(room=1), Credit(slot=0)]
    raw.decode.assert_holds([])


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (Refuse(why="go away"), "go away"),
        (Credit(slot=0), "a prefill rank says no Credit"),
        (Block(room=1, slot=0, rows=1, size=ROW_BYTES), f"a block of {ROW_BYTES} B came with no payload"),
        (Block(room=1, slot=77, rows=1, size=8), "8 B for slot 77, but there are 4 slots of 262144 B"),
    ],
)
def test_a_prefill_rank_that_makes_no_sense_is_left(raw: RawPrefillRank, said: Message, why: str) -> None:
    raw.say(said)
    failed = raw.decode.hears()
    assert isinstance(failed, Failed)
    assert failed.why.startswith(f"prefill rank 0 at 127.0.0.1:{raw.port} ")
    assert failed.why.endswith(why)
    # The next request begins anew.
    raw.expect("again", room=3)
    raw.say(*raw.block(0, 8, room=3))
    raw.say(End(room=3, rows=8, first=FIRST))
    assert raw.decode.hears() == arrived("again")


def test_cancelled_by_the_prefill_rank_it_fails_with_the_reason(raw: RawPrefillRank) -> None:
    raw.say(*raw.block(0, 5))
    raw.say(Cancel(room=1, why="prefill rank 0 gave it up: the client is gone"))
    assert raw.decode.hears() == Failed("r", "prefill rank 0 gave it up: the client is gone")
    raw.decode.pool.free_pages([2])
    raw.decode.assert_holds([])


def test_what_was_said_before_the_end_of_a_connection_counts(raw: RawPrefillRank) -> None:
    raw.say(*raw.block(0, 8))
    raw.say(End(room=1, rows=8, first=FIRST))
    raw.router.close(linger=round(PATIENCE_S * 1000))
    assert raw.decode.hears() == arrived("r")
    raw.decode.assert_holds([(raw.prompt, (2,), 5)])


def test_hello_says_who_comes_and_where_payload_goes() -> None:
    with zmq.Context() as context:
        router = context.socket(zmq.ROUTER)
        port = router.bind_to_random_port("tcp://127.0.0.1")
        prefill, decode_config = small(disaggregation_transfer_backend=TransferBackend.SHM)
        rank = DecodeRank(decode_config, 0, 4).start(slots=3, slot_bytes=1)
        peer = PeerInfo(host="127.0.0.1", shape=PrefillRank(prefill, 0, 4).shape, ports=(port,), nonce="n")
        rank.receiver.expect("r", room=1, index=0, prompt_len=1, pages=(1,), peer=peer)
        hello = decode(router.recv_multipart()[1])
        rank.receiver.close()
        router.close(linger=0)
    assert isinstance(hello, Hello)
    assert (hello.nonce, hello.tp_rank, hello.shape) == ("n", 0, rank.shape.to_dict())
    # A slot holds a row at least.
    assert {name: hello.offer[name] for name in ("slots", "slot_bytes")} == {
        "slots": 3,
        "slot_bytes": ROW_BYTES,
    }
