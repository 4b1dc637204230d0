"""Which rows go where, how they travel, and real KV handed over between real pools."""

from __future__ import annotations

import pytest
import torch
from handover_driver import dealt_to, hand_over, rows_by_hand
from hypothesis import given
from hypothesis import strategies as st
from pd_pairs import SUPPORTED, Pair

from harness.refengine.kv_pool import KVPool
from harness.refengine.transfer.packing import (
    Block,
    BlockFormat,
    destination_rows,
    expected_positions,
    pack_rows,
    source_rows,
    transfer_positions,
    unpack_rows,
)
from harness.topology import KVLayout

# The bound of the engine's own tests of whole engines; one row astray moves a log-probability by far more.
HEALTHY = 2e-5
# Around the chunk of 24 tokens, pages of 16 rows and 64 tokens, and with ranks that own nothing.
LENGTHS = [1, 2, 3, 5, 16, 17, 23, 24, 25, 48, 63, 64, 65, 129]

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@pytest.mark.parametrize("pair", SUPPORTED, ids=lambda pair: pair.id)
def test_an_engine_answers_from_what_was_handed_over(pair: Pair) -> None:
    prefill, decode = pair.configs(chunked_prefill_size=24)
    landed = hand_over(prefill, decode, LENGTHS)
    assert landed.rows == rows_by_hand(decode, landed.requests, LENGTHS)
    assert landed.poison_intact
    assert landed.gap <= HEALTHY


def test_bf16_is_handed_over() -> None:
    """No further from the oracle than engines of one rank, which bf16 itself keeps away from it."""
    alone, split = (
        Pair(prefill={"tp": dcp}, decode={"tp": dcp, "dcp": dcp}, shows="").configs(dtype="bf16")
        for dcp in (1, 4)
    )
    assert hand_over(*split, LENGTHS).gap <= 2 * hand_over(*alone, LENGTHS).gap


@st.composite
def dealings(draw: st.DrawFn) -> tuple[KVLayout, KVLayout]:
    interleave, page_size = draw(st.sampled_from(((1, 4), (2, 4), (4, 4), (3, 6))))
    dcp = draw(st.integers(1, 5))
    source = draw(st.sampled_from((1, dcp)))
    return (
        KVLayout(dcp_size=source, page_size=page_size, interleave=interleave),
        KVLayout(dcp_size=dcp, page_size=page_size, interleave=interleave),
    )


@given(dealings(), st.lists(st.integers(0, 30), min_size=1, max_size=4))
def test_chunks_bring_what_is_expected_in_that_order(
    layouts: tuple[KVLayout, KVLayout], lengths: list[int]
) -> None:
    prefill, decode = layouts
    stops = [sum(lengths[: nth + 1]) for nth in range(len(lengths))]
    owners = [dealt_to(p, dcp=decode.dcp_size, interleave=decode.interleave) for p in range(stops[-1])]
    for source in range(prefill.dcp_size):
        for destination in range(decode.dcp_size):
            ranks = {"source_dcp_rank": source, "destination_dcp_rank": destination}
            sent = [
                position
                for start, stop in zip([0, *stops], stops, strict=False)
                for position in transfer_positions(prefill, decode, start=start, stop=stop, **ranks).tolist()
            ]
            holds_all = prefill.dcp_size == 1 or source == destination
            assert sent == [p for p, owner in enumerate(owners) if owner == destination and holds_all]
            assert sent == expected_positions(prefill, decode, length=stops[-1], **ranks).tolist()


@given(dealings(), st.permutations(range(1, 8)))
def test_rows_are_those_of_the_layout(layouts: tuple[KVLayout, KVLayout], pages: list[int]) -> None:
    for layout in layouts:
        length = len(pages) * layout.widened_page_size
        expected = [layout.row(layout.slot(pages, position)) for position in range(length)]
        assert source_rows(layout, pages, torch.arange(length)).tolist() == expected
        assert destination_rows(layout, tuple(pages), torch.arange(length)).tolist() == expected


def test_nothing_to_send_is_no_row() -> None:
    layout = KVLayout(dcp_size=4, page_size=4)
    none = transfer_positions(
        KVLayout(dcp_size=1, page_size=4), layout, start=4, stop=6, source_dcp_rank=0, destination_dcp_rank=3
    )
    assert source_rows(layout, (1,), none).tolist() == []


def pool(dtype: str = "fp32", *, heads: int = 3) -> KVPool:
    return KVPool(
        layout=KVLayout(dcp_size=1, page_size=4),
        rows=16,
        num_layers=2,
        kv_heads=heads,
        head_dim=8,
        dtype=DTYPES[dtype],
        poison=9.0,
    )


def filled(dtype: str = "fp32") -> KVPool:
    full = pool(dtype)
    full.kv.copy_(torch.randn(full.kv.shape, generator=torch.Generator().manual_seed(2)))
    full.tags[4:] = torch.tensor([[3, row, 100 + row] for row in range(16)])
    return full


def form(dtype: str, *, heads: int = 2) -> BlockFormat:
    return BlockFormat(num_layers=2, kv_heads=heads, head_dim=8, dtype=DTYPES[dtype])


@pytest.mark.parametrize("writable", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_block_says_what_is_in_the_rows_and_survives_the_wire(dtype: str, writable: bool) -> None:
    full = filled(dtype)
    rows = torch.tensor([9, 4, 19])
    data = pack_rows(full, rows, range(1, 3)).to_bytes()
    assert len(data) == 3 * form(dtype).row_bytes
    assert form(dtype).kv_row_bytes == full.kv[:, 4, :, 1:3].nbytes
    block = Block.from_bytes(bytearray(data) if writable else data, form(dtype))
    assert block.positions.tolist() == [5, 0, 15]
    assert block.tokens.tolist() == [105, 100, 115]
    assert torch.equal(block.kv, full.kv[:, [9, 4, 19], :, 1:3])


def test_a_block_lies_in_writable_memory_itself_and_not_in_the_pool() -> None:
    full = filled()
    memory = bytearray(pack_rows(full, torch.tensor([4]), range(2)).to_bytes())
    block = Block.from_bytes(memoryview(memory), form("fp32"))
    memory[0] = 77
    assert block.positions.tolist() == [77]
    before = full.kv.clone()
    pack_rows(full, torch.tensor([4]), range(2)).kv.fill_(0)
    assert torch.equal(full.kv, before)


@pytest.mark.parametrize("size", [0, 1, 527, 529])
def test_a_block_of_no_whole_rows_is_refused(size: int) -> None:
    """A row is 16 B of position and token, and 2 layers, keys and values of 2 heads of 8 numbers of 4 B."""
    with pytest.raises(ValueError, match=f"a block of {size} B is no whole number of rows of 272 B"):
        Block.from_bytes(bytes(size), form("fp32"))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_single_row_travels(dtype: str) -> None:
    data = pack_rows(filled(dtype), torch.tensor([7]), range(2)).to_bytes()
    assert Block.from_bytes(data, form(dtype)).tokens.tolist() == [103]


@pytest.mark.parametrize("dtype", DTYPES)
def test_unpacking_touches_these_rows_and_heads_only(dtype: str) -> None:
    full, empty = filled(dtype), pool(dtype, heads=4)
    before = empty.kv.clone()
    block = pack_rows(full, torch.tensor([9, 4]), range(1, 3))
    unpack_rows(empty, block, index=6, rows=torch.tensor([17, 8]), heads=range(2, 4))
    before[:, [17, 8], :, 2:4] = full.kv[:, [9, 4], :, 1:3]
    assert torch.equal(empty.kv, before)
    assert empty.held_rows() == [[8, 6, 0, 100], [17, 6, 5, 105]]
