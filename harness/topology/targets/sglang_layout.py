"""The layout target `sglang`: the package's own functions, driven as the rank that they are asked for.

Which functions there are is found in the package, not decided by its version. Each call stands in its own `inject`
block, because these functions read the topology from the process.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from harness.topology.config import ParallelConfig
from harness.topology.layout import KVLayout
from harness.topology.shim import inject
from harness.topology.targets import sglang_groups, sglang_heads, sglang_pool
from harness.topology.targets.detect import SglangTarget, detect
from harness.topology.targets.layout import ALL_FUNCTIONS, Function, named

_LAYOUT_MODULE = "sglang.srt.layers.dcp.layout"
_TRANSLATOR_MODULE = "sglang.srt.mem_cache.kv_index_translator"

# What releases have in common, from 0.5.18 on.
_ALWAYS = (
    Function.LENGTHS,
    Function.LENGTHS_IN_PLACE,
    Function.ROWS,
    Function.SLOTS,
    Function.NUM_PAGES,
    Function.TP_GROUPS,
    Function.DCP_GROUPS,
    Function.SEAT,
    Function.Q_HEADS,
    Function.CAPACITY,
    Function.REQUEST_CAP,
)
# Functions of the layout module that came with a release: name there, and what it answers.
_IF_PRESENT = {
    "filter_dcp_local_chunk_kv_indices": Function.CHUNK_ROWS,
    "maybe_dcp_kernel_indices": Function.PAGE_ROWS,
    "localize_dcp_indices": Function.LOCALIZE,
    "remap_dcp_sparse_indices": Function.SPARSE_ROWS,
    "get_dcp_chain_spec_lens": Function.CHAIN_LENGTHS,
}


@contextmanager
def _as_rank(layout: KVLayout, rank: int) -> Iterator[None]:
    """One DCP group that fills its TP group: these functions see no more of the topology than that."""
    group = ParallelConfig(tp_size=layout.dcp_size, dcp_size=layout.dcp_size)
    with inject(group, rank=rank, target="sglang"):
        yield


class SglangLayout:
    """The package that is importable here. Raises InjectionError where none is."""

    def __init__(self) -> None:
        # An allocator of 0.5.18 is a triton kernel; without a GPU triton interprets it, if told before it is compiled.
        os.environ.setdefault("TRITON_INTERPRET", "1")
        self._package: SglangTarget = detect()
        self._torch: Any = importlib.import_module("torch")
        self._module: Any = importlib.import_module(_LAYOUT_MODULE)
        self.name = str(self._package)
        self.functions = self._find_functions()

    def local_lens(
        self, layout: KVLayout, rank: int, lengths: Sequence[int], starts: Sequence[int] | None = None
    ) -> list[int]:
        arguments = self._interleave(layout, self._module.get_dcp_lens)
        counts = lengths
        if starts is not None:  # the package counts from the start on
            counts = [length - start for length, start in zip(lengths, starts, strict=True)]
            arguments["start"] = self._tensor(starts)
        found = self._module.get_dcp_lens(self._tensor(counts), layout.dcp_size, rank, **arguments)
        return self._ints(found)

    def local_lens_in_place(self, layout: KVLayout, rank: int, lengths: Sequence[int]) -> list[int]:
        batch = self._tensor(lengths)
        with _as_rank(layout, rank):
            self._module.update_local_kv_lens_for_dcp(batch)
        return self._ints(batch)

    def chain_lens(self, layout: KVLayout, rank: int, lengths: Sequence[int], tokens: int) -> list[int]:
        function = self._module.get_dcp_chain_spec_lens
        arguments = self._interleave(layout, function)
        return self._ints(function(self._tensor(lengths), tokens, layout.dcp_size, rank, **arguments))

    def rows(self, layout: KVLayout, rank: int, slots: Sequence[int]) -> list[int]:
        with _as_rank(layout, rank):
            mine = self._module.filter_dcp_local_kv_indices(self._tensor(slots))
            return self._ints(self._collapse(mine))

    def chunk_rows(self, layout: KVLayout, rank: int, chunks: Sequence[tuple[int, list[int]]]) -> list[int]:
        starts = self._tensor([start for start, _ in chunks])
        lengths = self._tensor([len(slots) for _, slots in chunks])
        slots = self._tensor([slot for _, stretch in chunks for slot in stretch])
        with _as_rank(layout, rank):
            mine = self._module.filter_dcp_local_chunk_kv_indices(slots, starts, lengths)
            return self._ints(self._collapse(mine))

    def page_rows(self, layout: KVLayout, rank: int, slots: Sequence[int]) -> list[int]:
        return self._ints(self._module.maybe_dcp_kernel_indices(self._tensor(slots), layout.dcp_size, rank))

    def localize(self, layout: KVLayout, rank: int, slots: Sequence[int]) -> list[int]:
        function = self._module.localize_dcp_indices
        arguments = self._interleave(layout, function)
        return self._ints(function(self._tensor(slots), layout.dcp_size, rank, **arguments))

    def sparse_rows(self, layout: KVLayout, rank: int, slots: Sequence[int]) -> list[int]:
        function = self._module.remap_dcp_sparse_indices
        arguments = self._interleave(layout, function)
        return self._ints(function(self._tensor(slots), layout.dcp_size, rank, **arguments))

    def slots(self, layout: KVLayout, pages: Sequence[int], length: int) -> list[int]:
        with _as_rank(layout, 0):
            return sglang_pool.drawn(layout, pages, length).slots

    def num_pages(self, layout: KVLayout, length: int) -> int:
        with _as_rank(layout, 0):
            return sglang_pool.drawn(layout, range(1, length + 2), length).pages

    def capacity(self, layout: KVLayout, rows_per_rank: int) -> int:
        with _as_rank(layout, 0):
            return int(sglang_pool.build_allocator(layout, rows_per_rank).available_size())

    def tp_groups(self, config: ParallelConfig) -> list[list[int]]:
        return sglang_groups.build(self._package, config, rank=0).tp

    def dcp_groups(self, config: ParallelConfig) -> list[list[int]]:
        return sglang_groups.build(self._package, config, rank=0).dcp

    def seat(self, config: ParallelConfig, rank: int) -> tuple[int, int]:
        return sglang_groups.build(self._package, config, rank=rank).seat

    def q_heads(self, *, num_q_heads: int, num_kv_heads: int, config: ParallelConfig, rank: int) -> list[int]:
        with inject(config, rank=rank, target="sglang"):
            return sglang_heads.load(num_q_heads=num_q_heads, num_kv_heads=num_kv_heads).q

    def kv_heads(
        self, *, num_q_heads: int, num_kv_heads: int, config: ParallelConfig, rank: int
    ) -> list[int]:
        with inject(config, rank=rank, target="sglang"):
            return sglang_heads.load(num_q_heads=num_q_heads, num_kv_heads=num_kv_heads).kv

    def kv_head_count(self, *, num_kv_heads: int, config: ParallelConfig) -> int:
        with inject(config, rank=0, target="sglang"):
            return sglang_heads.pool_heads(num_kv_heads)

    def admitted(self, layout: KVLayout, *, input_len: int, asked: int, rows_per_rank: int) -> int:
        with _as_rank(layout, 0):
            return sglang_pool.admitted(layout, input_len=input_len, asked=asked, rows_per_rank=rows_per_rank)

    def admission_page(self, layout: KVLayout) -> int:
        with _as_rank(layout, 0):
            return sglang_pool.admission_page(layout)

    def _find_functions(self) -> frozenset[str]:
        found = {named(function) for function in _ALWAYS}
        interleaved = {"get_dcp_lens": Function.LENGTHS}
        for name, function in _IF_PRESENT.items():
            if hasattr(self._module, name):
                found.add(named(function))
                interleaved[name] = function
        for name, function in interleaved.items():
            if "interleave_size" in inspect.signature(getattr(self._module, name)).parameters:
                found.add(named(function, 2))
        if sglang_heads.replicates_kv():
            found |= {named(Function.KV_HEADS), named(Function.KV_HEAD_COUNT)}
        return frozenset(found) & ALL_FUNCTIONS

    def _interleave(self, layout: KVLayout, function: Any) -> dict[str, Any]:
        """Left out where it is 1: the default is what the package's callers get."""
        return {} if layout.interleave == 1 else {"interleave_size": layout.interleave}

    def _collapse(self, slots: Any) -> Any:
        """In newer releases the filters only select, and a translator turns slots into rows."""
        if not hasattr(self._module, "maybe_dcp_kernel_indices"):
            return slots
        translator = importlib.import_module(_TRANSLATOR_MODULE).KVIndexTranslator
        return translator.translate_dcp_read_ids(SimpleNamespace(is_translating=False), slots)

    def _tensor(self, values: Sequence[int]) -> Any:
        return self._torch.tensor(list(values), dtype=self._torch.int64)

    def _ints(self, tensor: Any) -> list[int]:
        return [int(value) for value in tensor.tolist()]
