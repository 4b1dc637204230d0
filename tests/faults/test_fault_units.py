"""Each fault on its seam alone, against what its title says, worked out in another way."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from harness.faults import get_fault
from harness.refengine import attention
from harness.refengine.batch import Batch, ForwardMode, SequenceChunk
from harness.refengine.comm import Comms, ThreadWorld
from harness.refengine.config import DcpCommBackend, EngineConfig
from harness.refengine.kv_pool import KVPool
from harness.refengine.layout_seams import (
    local_kv_len,
    pool_layout,
    rotary_positions,
    shard_position,
    stored_kv_heads,
    token_owner,
)
from harness.refengine.step_plan import ExtendReads, make_step_plan
from harness.refengine.transfer.packing import (
    destination_rows,
    expected_positions,
    pack_rows,
    source_rows,
    transfer_positions,
)
from harness.topology import KVLayout

pytestmark = pytest.mark.usefixtures("healthy_afterwards")

SCALE = 0.7
FOUR = KVLayout(dcp_size=4, page_size=4)
ONE = KVLayout(dcp_size=1, page_size=4)


class Shard:
    """What one rank attends with: three sequences, the last without a token here; 4 query and 2 KV heads."""

    def __init__(self) -> None:
        made = torch.Generator().manual_seed(5)
        self.q = torch.randn(3, 4, 8, generator=made)
        self.k, self.v = torch.randn(2, 3, 2, 5, 8, generator=made)
        self.lengths = [5, 2, 0]
        self.padding = torch.arange(5) >= torch.tensor(self.lengths)[:, None]

    def attend(self) -> tuple[Tensor, Tensor]:
        return attention.local_attention(self.q, self.k, self.v, self.padding, scale=SCALE)

    def expected(self, kv_head: Callable[[int], int] = lambda h: h // 2) -> tuple[Tensor, Tensor, Tensor]:
        """Output, LSE, and LSE of raw scores, token by token in fp64."""
        out, lse, raw = torch.zeros(3, 4, 8), torch.zeros(3, 4), torch.zeros(3, 4)
        for b, length in enumerate(self.lengths):
            for h in range(4):
                k, v = self.k[b, kv_head(h), :length].double(), self.v[b, kv_head(h), :length].double()
                scores = [float(row @ self.q[b, h].double()) for row in k]
                powers = [math.exp(score * SCALE) for score in scores]
                total = sum(powers)
                lse[b, h] = math.log(total) if total else -math.inf
                raw[b, h] = math.log(sum(map(math.exp, scores))) if total else -math.inf
                for power, row in zip(powers, v, strict=True):
                    out[b, h] += power / total * row
        return out, lse, raw


def close(found: Tensor, expected: Tensor) -> bool:
    return torch.allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_the_healthy_shard_is_what_the_loop_says() -> None:
    out, lse = Shard().attend()
    expected = Shard().expected()
    assert close(out, expected[0]) and close(lse, expected[1])


@pytest.mark.parametrize(
    ("fault_id", "told"),
    [
        ("lse-log2", lambda lse, raw: lse / math.log(2)),
        ("lse-unscaled", lambda lse, raw: raw),
        ("lse-bf16", lambda lse, raw: lse.bfloat16().float()),
        ("empty-shard", lambda lse, raw: torch.cat([lse[:2], torch.zeros(1, 4)])),
        # Column by column, cut into rows again.
        ("lse-stride", lambda lse, raw: torch.cat([lse[:, h] for h in range(4)]).view(3, 4)),
    ],
)
def test_faults_of_the_lse_leave_the_output_alone(
    fault_id: str, told: Callable[[Tensor, Tensor], Tensor]
) -> None:
    get_fault(fault_id).install()
    (out, lse), (right, right_lse, raw) = Shard().attend(), Shard().expected()
    assert close(out, right)
    assert close(lse, told(right_lse, raw))
    assert not close(lse, right_lse)


def test_out_bf16_keeps_eight_bits_of_the_output() -> None:
    get_fault("out-bf16").install()
    (out, lse), (right, right_lse, _) = Shard().attend(), Shard().expected()
    assert close(lse, right_lse) and not close(out, right)
    assert torch.equal(out, out.bfloat16().float())
    assert torch.allclose(out, right, rtol=2**-8)


def test_kv_head_mod_deals_kv_heads_in_turns() -> None:
    get_fault("kv-head-mod").install()
    (out, lse), (right, right_lse, _) = Shard().attend(), Shard().expected(lambda h: h % 2)
    assert close(out, right) and close(lse, right_lse)


def merged(backend: DcpCommBackend) -> Tensor:
    """[ranks, B 1, own heads 1, D 1] of four ranks whose outputs are 1, 2, 3, 4 on every head."""
    merge = attention.merge_ag_rs if backend is DcpCommBackend.AG_RS else attention.merge_a2a

    def rank_main(rank: int, comms: Comms) -> Tensor:
        out = torch.full((1, 4, 1), rank + 1.0)
        lse = torch.tensor([[0.0, 1.0, 2.0, 3.0]]).roll(rank, dims=1)
        return merge(out, lse, comms.dcp)

    return torch.stack(ThreadWorld(EngineConfig(tp=4, dcp=4)).run(rank_main)).flatten()


@pytest.mark.parametrize("backend", list(DcpCommBackend))
@pytest.mark.parametrize(
    ("fault_id", "expected"),
    [
        # Of head h, rank r has LSE (h - r) mod 4: the largest is 3, of rank (h + 1) mod 4.
        ("merge-max", [2.0, 3.0, 4.0, 1.0]),
        ("merge-mean", [2.5, 2.5, 2.5, 2.5]),
        ("merge-skipped", [1.0, 2.0, 3.0, 4.0]),
        (
            "lse-base",
            [sum((r + 1) * 2 ** ((h - r) % 4) for r in range(4)) / 15 for h in range(4)],
        ),
    ],
)
def test_faults_of_the_merge(fault_id: str, expected: list[float], backend: DcpCommBackend) -> None:
    healthy = merged(backend)
    get_fault(fault_id).install()
    assert close(merged(backend), torch.tensor(expected))
    assert not close(healthy, torch.tensor(expected))


def test_head_order_gathers_the_last_rank_first() -> None:
    get_fault("head-order").install()

    def rank_main(rank: int, comms: Comms) -> list[float]:
        q = torch.tensor([[[10.0 * rank], [10.0 * rank + 1]]])
        return attention.gather_heads(q, comms.dcp).flatten().tolist()

    every = ThreadWorld(EngineConfig(tp=4, dcp=4, model="builtin:random-gqa")).run(rank_main)
    assert every == [[30, 31, 20, 21, 10, 11, 0, 1]] * 4


@pytest.mark.parametrize(
    ("fault_id", "shards"),
    [
        # Of 1, 4, 6, 18 tokens dealt to four ranks.
        ("len-ceil", [[1, 1, 2, 5]] * 4),
        ("len-stale", [[0, 1, 2, 5], [0, 1, 1, 4], [0, 1, 1, 4], [0, 0, 1, 4]]),
        ("partial-page", [[0, 0, 0, 4]] * 4),
        ("shard-lost", [[1, 1, 2, 5], [0, 0, 0, 0], [0, 1, 1, 4], [0, 1, 1, 4]]),
    ],
)
def test_faults_of_local_lengths(fault_id: str, shards: list[list[int]]) -> None:
    lengths = torch.tensor([1, 4, 6, 18])
    get_fault(fault_id).install()
    assert [local_kv_len(FOUR, lengths, rank).tolist() for rank in range(4)] == shards


def test_interleave_reader_takes_runs_of_a_page() -> None:
    get_fault("interleave-reader").install()
    read = [shard_position(FOUR, torch.arange(6), rank).tolist() for rank in range(4)]
    assert read == [[*range(r * 4, r * 4 + 4), 16 + r * 4, 17 + r * 4] for r in range(4)]
    assert token_owner(FOUR, torch.arange(6)).tolist() == [0, 1, 2, 3, 0, 1]


def test_owner_div_gives_blocks_and_leaves_the_group() -> None:
    layout, positions = KVLayout(dcp_size=2, page_size=4), torch.arange(6)
    assert token_owner(layout, positions).tolist() == [0, 1, 0, 1, 0, 1]
    get_fault("owner-div").install()
    assert token_owner(layout, positions).tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("interleave", [1, 2])
def test_owner_rotated_is_a_layout_in_itself(interleave: int) -> None:
    """Every token is read by the rank that wrote it, and by no other: the rank after the right one."""
    layout, length = KVLayout(dcp_size=4, page_size=4, interleave=interleave), 18
    right = [layout.owner(p) for p in range(length)]
    get_fault("owner-rotated").install()
    written = token_owner(layout, torch.arange(length)).tolist()
    assert written == [(owner + 1) % 4 for owner in right]
    for rank in range(4):
        count = int(local_kv_len(layout, torch.tensor([length]), rank))
        read = shard_position(layout, torch.arange(count), rank).tolist()
        assert read == [p for p in range(length) if written[p] == rank]


def test_owner_page_builds_the_pool_with_an_interleave_of_a_page() -> None:
    config = EngineConfig(tp=4, dcp=4, page_size=4)
    get_fault("owner-page").install()
    layout = pool_layout(config)
    assert [layout.owner(p) for p in range(20)] == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4 + [0] * 4
    assert layout.widened_page_size == config.layout().widened_page_size


def one_chunk(start: int, count: int, *, pages: tuple[int, ...] = (3, 1)) -> Batch:
    chunk = SequenceChunk(rid="r", index=0, tokens=(7,) * count, start=start, pages=pages)
    return Batch(mode=ForwardMode.EXTEND, chunks=(chunk,))


@pytest.mark.parametrize(
    ("fault_id", "rows"),
    [
        # Five tokens from position 14 on rank 3: pages 3 and 1 have rows 12 to 15 and 4 to 7.
        (None, [0, 15, 0, 0, 0]),
        ("write-all", [15, 15, 4, 4, 4]),
        ("pad-slot", [4, 15, 4, 4, 4]),
    ],
)
def test_faults_of_writing(fault_id: str | None, rows: list[int]) -> None:
    if fault_id:
        get_fault(fault_id).install()
    assert make_step_plan(one_chunk(14, 5), FOUR, 3).write_rows.tolist() == rows


@pytest.mark.parametrize(
    ("prefix", "healthy", "faulty"),
    [
        # Rank by rank, two rows of each: a full prefix is all there, only in another order.
        (8, [0, 2, 4, 6, 1, 3, 5, 7], [0, 1, 2, 3, 4, 5, 6, 7]),
        # Row 3 is rank 1's padding, and row 4 (position 2) is read for position 4, row 6 not at all.
        (5, [0, 2, 4, 6, 1], [0, 1, 2, 3, 4]),
    ],
)
def test_prefix_order_takes_rows_as_they_come(prefix: int, healthy: list[int], faulty: list[int]) -> None:
    def order() -> list[int]:
        reads = make_step_plan(one_chunk(prefix, 2), FOUR, 0).reads
        assert isinstance(reads, ExtendReads)
        return reads.order.tolist()

    assert order() == healthy
    get_fault("prefix-order").install()
    assert order() == faulty


def test_free_partial_forgets_the_first_rows_of_a_page() -> None:
    layout = KVLayout(dcp_size=2, page_size=4)
    pool = KVPool(
        layout=layout, rows=8, num_layers=1, kv_heads=1, head_dim=2, dtype=torch.float32, poison=9.0
    )
    rows = torch.arange(4, 8)
    pool.write_tags(rows, torch.tensor([[0, p, 65] for p in range(4)]))
    pool.write(0, rows, torch.zeros(4, 2, 1, 2))
    get_fault("free-partial").install()
    pool.free_pages([1])
    assert [row for row, *_ in pool.held_rows()] == [6, 7]
    assert pool.check_poison()


def test_rope_local_turns_decode_by_the_shard() -> None:
    positions = torch.tensor([0, 3, 4, 17])
    get_fault("rope-local").install()
    assert rotary_positions(FOUR, positions, ForwardMode.DECODE).tolist() == [0, 0, 1, 4]
    assert rotary_positions(FOUR, positions, ForwardMode.EXTEND).tolist() == [0, 3, 4, 17]


def test_kv_head_tp_gives_ranks_of_a_group_different_heads() -> None:
    def stored() -> list[range]:
        sizes = {"num_kv_heads": 2, "tp_size": 4, "dcp_size": 4}
        return [stored_kv_heads(tp_rank=rank, **sizes) for rank in range(4)]

    assert stored() == [range(2)] * 4
    get_fault("kv-head-tp").install()
    assert stored() == [range(1), range(1), range(1, 2), range(1, 2)]


def sent(start: int, stop: int, *, source: KVLayout = ONE) -> list[list[int]]:
    """Positions that each of four DCP ranks is sent of a chunk, by source rank 0 of dcp 1 or its own of dcp 4."""
    return [
        transfer_positions(
            source,
            FOUR,
            start=start,
            stop=stop,
            source_dcp_rank=rank % source.dcp_size,
            destination_dcp_rank=rank,
        ).tolist()
        for rank in range(4)
    ]


@pytest.mark.parametrize(
    ("fault_id", "positions"),
    [
        (None, [[4, 8, 12], [5, 9, 13], [6, 10], [7, 11]]),
        # Rank 1 keeps what rank 2 has nothing for.
        ("pd-swap", [[4, 8, 12], [6, 10, 13], [5, 9], [7, 11]]),
        ("pd-contiguous", [[4, 5, 6], [7, 8, 9], [10, 11], [12, 13]]),
    ],
)
def test_faults_of_who_is_sent_what(fault_id: str | None, positions: list[list[int]]) -> None:
    """Nothing is lost or doubled, and each rank gets as many as it awaits; what it awaits is not touched."""
    if fault_id:
        get_fault(fault_id).install()
    assert sent(4, 14) == positions
    assert sent(4, 6) == [[4], [5], [], []]
    awaited = expected_positions(ONE, FOUR, length=9, source_dcp_rank=0, destination_dcp_rank=1)
    assert awaited.tolist() == [1, 5]


@pytest.mark.parametrize("fault_id", ["pd-swap", "pd-contiguous"])
def test_where_nothing_is_dealt_out_nothing_changes(fault_id: str) -> None:
    healthy = sent(0, 14, source=FOUR)
    get_fault(fault_id).install()
    assert sent(0, 14, source=FOUR) == healthy


def test_pd_lost_page_reads_the_dummy_for_the_last_page() -> None:
    positions = torch.tensor([0, 3, 7, 8, 9])
    assert source_rows(ONE, (5, 2, 7), positions).tolist() == [20, 23, 11, 28, 29]
    get_fault("pd-lost-page").install()
    assert source_rows(ONE, (5, 2, 7), positions).tolist() == [20, 23, 11, 0, 0]
    assert destination_rows(ONE, (5, 2, 7), positions).tolist() == [20, 23, 11, 28, 29]


def test_pd_shift_reads_the_row_behind() -> None:
    pool = KVPool(layout=ONE, rows=8, num_layers=1, kv_heads=1, head_dim=2, dtype=torch.float32, poison=9.0)
    pool.tags[:, 1] = torch.arange(12)
    rows = torch.tensor([4, 7, 11])
    assert pack_rows(pool, rows, range(1)).positions.tolist() == [4, 7, 11]
    get_fault("pd-shift").install()
    assert pack_rows(pool, rows, range(1)).positions.tolist() == [5, 8, 11]
