"""Handovers between all ranks of two engines, over every transport: each row arrives once, where it belongs."""

from __future__ import annotations

import pytest
from pd_pairs import SUPPORTED, Pair
from transfer_world import FIRST, TRANSPORTS, World

from harness.refengine.config import TransferBackend
from harness.refengine.transfer.events import Arrived, Bound, Sent


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("pair", SUPPORTED, ids=lambda pair: pair.id)
def test_every_row_arrives_where_it_belongs(pair: Pair, transport: TransferBackend) -> None:
    with World(*pair.configs(transport)) as world:
        shape = world.prefill[0].shape
        # A ragged last page, a token less than a shard, a single token: ranks that own none of it take part too.
        lengths = [2 * shape.page_size + 5, 3, 1]
        prompts = [world.prompt(length, seed) for seed, length in enumerate(lengths)]
        theirs = [(2, 5, 1), (3,), (4,)]
        ours = [(6, 1, 2), (8,), (9,)]
        for nth, prompt in enumerate(prompts):
            world.open(f"r{nth}", room=nth, prompt=prompt)
            world.expect(f"r{nth}", room=nth, prompt=prompt, pages=ours[nth], index=nth)
            for rank in world.prefill:
                assert rank.hears() == Bound(f"r{nth}")
            world.send(f"r{nth}", prompt, theirs[nth], chunk=16)
            for rank in world.prefill:
                assert rank.hears() == Sent(f"r{nth}")
            for decode in world.decode:
                assert decode.hears() == Arrived(f"r{nth}", FIRST if decode.tp_rank == 0 else None)
        for decode in world.decode:
            decode.assert_holds(list(zip(prompts, ours, range(len(prompts)), strict=True)))
        assert_nothing_twice(world)


def assert_nothing_twice(world: World) -> None:
    """Bytes sent are bytes owned: over all sources, and for each destination."""
    owned = {
        str(rank.tp_rank): len(rank.pool.held_rows()) * rank.pool.kv[:, 0].nbytes for rank in world.decode
    }
    sent = [rank.sender.stats() for rank in world.prefill]
    received = [rank.receiver.stats() for rank in world.decode]
    assert sum(stats["bytes_sent"] for stats in sent) == sum(owned.values())
    assert [stats["bytes_received"] for stats in received] == list(owned.values())
    for rank, size in owned.items():
        assert sum(stats["to"].get(rank, {"bytes": 0})["bytes"] for stats in sent) == size
    assert [stats["open"] for stats in [*sent, *received]] == [0] * len(world.ranks)
    assert [stats["waiting_blocks"] for stats in sent] == [0] * len(sent)
