"""The layout target `reference`: this room's own arithmetic, asked in the words of `LayoutTarget`."""

from __future__ import annotations

from collections.abc import Sequence

from harness.topology.config import ParallelConfig
from harness.topology.groups import dcp_groups, tp_groups
from harness.topology.layout import Capacity, KVLayout, kv_head_range, q_head_range, request_fits
from harness.topology.state import ParallelState
from harness.topology.targets.layout import ALL_FUNCTIONS


class ReferenceLayout:
    """Has a function for every question."""

    name = "reference"
    functions = ALL_FUNCTIONS

    def local_lens(
        self, layout: KVLayout, rank: int, lengths: Sequence[int], starts: Sequence[int] | None = None
    ) -> list[int]:
        pairs = zip(lengths, starts or [0] * len(lengths), strict=True)
        return [layout.local_len(length, rank, start=start) for length, start in pairs]

    def local_lens_in_place(self, layout: KVLayout, rank: int, lengths: Sequence[int]) -> list[int]:
        return self.local_lens(layout, rank, lengths)

    def chain_lens(self, layout: KVLayout, rank: int, lengths: Sequence[int], tokens: int) -> list[int]:
        fronts = [
            length - tokens + step if length >= tokens else 0
            for length in lengths
            for step in range(1, tokens + 1)
        ]
        return self.local_lens(layout, rank, fronts)

    def rows(self, layout: KVLayout, rank: int, slots: Sequence[int]) -> list[int]:
        return [layout.row(slot) for slot in slots if layout.owner(slot) == rank]

    def chunk_rows(self, layout: KVLayout, rank: int, chunks: Sequence[tuple[int, list[int]]]) -> list[int]:
        return [
            layout.row(slots[position - start])
            for start, slots in chunks
            for position in layout.positions(start + len(slots), rank, start=start)
        ]

    def page_rows(self, layout: KVLayout, rank: int, slots: Sequence[int]) -> list[int]:
        pages = [
            slots[index] // layout.widened_page_size
            for index in range(0, len(slots), layout.widened_page_size)
        ]
        return [row for page in pages for row in layout.rows_of_page(page)]

    def localize(self, layout: KVLayout, rank: int, slots: Sequence[int]) -> list[int]:
        return [layout.row(slot) if slot >= 0 and layout.owner(slot) == rank else -1 for slot in slots]

    def sparse_rows(self, layout: KVLayout, rank: int, slots: Sequence[int]) -> list[int]:
        return sorted(self.localize(layout, rank, slots), key=lambda row: row < 0)

    def slots(self, layout: KVLayout, pages: Sequence[int], length: int) -> list[int]:
        return [layout.slot(pages, position) for position in range(length)]

    def num_pages(self, layout: KVLayout, length: int) -> int:
        return layout.num_pages(length)

    def capacity(self, layout: KVLayout, rows_per_rank: int) -> int:
        return Capacity(rows_per_rank=rows_per_rank, dcp_size=layout.dcp_size).max_total_num_tokens

    def tp_groups(self, config: ParallelConfig) -> list[list[int]]:
        return tp_groups(config)

    def dcp_groups(self, config: ParallelConfig) -> list[list[int]]:
        return dcp_groups(config)

    def seat(self, config: ParallelConfig, rank: int) -> tuple[int, int]:
        stage, tp_rank = divmod(rank, config.tp_size)
        state = ParallelState.from_config(config, tp_rank=tp_rank, pp_rank=stage)
        return state.attn_dcp_rank, state.attn_dcp_size

    def q_heads(self, *, num_q_heads: int, num_kv_heads: int, config: ParallelConfig, rank: int) -> list[int]:
        return list(q_head_range(num_q_heads=num_q_heads, tp_size=config.tp_size, tp_rank=rank))

    def kv_heads(
        self, *, num_q_heads: int, num_kv_heads: int, config: ParallelConfig, rank: int
    ) -> list[int]:
        sizes = {"tp_size": config.tp_size, "dcp_size": config.dcp_size, "tp_rank": rank}
        return list(kv_head_range(num_kv_heads=num_kv_heads, **sizes))

    def kv_head_count(self, *, num_kv_heads: int, config: ParallelConfig) -> int:
        return len(self.kv_heads(num_q_heads=num_kv_heads, num_kv_heads=num_kv_heads, config=config, rank=0))

    def admitted(self, layout: KVLayout, *, input_len: int, asked: int, rows_per_rank: int) -> int:
        capacity = Capacity(rows_per_rank=rows_per_rank, dcp_size=layout.dcp_size)
        for new in range(asked, 0, -1):
            if request_fits(input_len=input_len, max_new_tokens=new, layout=layout, capacity=capacity):
                return new
        return 0

    def admission_page(self, layout: KVLayout) -> int:
        return layout.widened_page_size
