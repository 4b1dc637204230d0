"""The step target `sglang`: an MLA attention backend of the package, which is given batches as its runner gives them.

The backend is the real class without its constructor, which wants a model: it gets the few attributes that the lengths
of a step depend on. Its page table is not filled, a kernel does that: what is asked is for which lengths it would be.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from harness.errors import InjectionError
from harness.topology.config import ParallelConfig
from harness.topology.layout import KVLayout
from harness.topology.shim import inject
from harness.topology.step_lens import PADDING_LEN, Step
from harness.topology.targets.detect import detect
from harness.topology.targets.step import Answer, Replay, StepFunction, named

_FOLDER = "sglang.srt.layers.attention"
# Who knows local lengths: 0.5.17 and 0.5.18 have the first, later ones the second, from which all MLA backends inherit.
_BACKENDS = (("tokenspeed_mla_backend", "TokenspeedMLABackend"), ("trtllm_mla_backend", "TRTLLMMLABackend"))
_LOCAL_LENS = "_get_dcp_local_seq_lens"
# The method came together with decode lengths in a graph's buffers; before, each layer computed them for itself.
_KEEPS_DECODE_LENS = "_apply_dcp_cuda_graph_metadata"
_CHAIN = "get_dcp_chain_spec_lens"
# Longer than any sequence of a test; bounds nothing but the page table, which is not filled.
_CONTEXT_LEN = 1 << 20


class SglangStep:
    """The package that is importable here. Raises InjectionError where none is, or no backend knows local lengths."""

    def __init__(self) -> None:
        # The backends' module compiles triton kernels where it is imported; without a GPU triton interprets them.
        os.environ.setdefault("TRITON_INTERPRET", "1")
        self.name = str(detect())
        self._torch: Any = importlib.import_module("torch")
        self._layout: Any = importlib.import_module("sglang.srt.layers.dcp.layout")
        self._mode: Any = importlib.import_module("sglang.srt.model_executor.forward_batch_info").ForwardMode
        self._kind = _find_backend(self.name)
        self.backend: str = self._kind.__name__
        self.functions = self._find_functions()

    def lengths(
        self, layout: KVLayout, rank: int, lengths: Sequence[int], *, step: Step, draft_tokens: int
    ) -> Answer:
        backend, paged = self._make(layout, rows=len(lengths), draft_tokens=draft_tokens)
        seq_lens = self._tensor(lengths)
        batch = SimpleNamespace(
            forward_mode=self._mode_of(step),
            batch_size=len(lengths),
            seq_lens=seq_lens,
            seq_lens_cpu=seq_lens,
            req_pool_indices=self._tensor(range(len(lengths))),
            kv_loc_plan=None,
        )
        with _as_rank(layout, rank):
            backend.init_forward_metadata(batch)
            found = backend.forward_decode_metadata
            whole, local = found.global_seq_lens_k, found.seq_lens_k
            if (
                whole is None
            ):  # then its forward_decode goes by the batch, and computes its part in each layer
                whole, local = local, getattr(backend, _LOCAL_LENS)(local)
        return Answer(
            global_lens=whole.tolist(),
            local_lens=local.tolist(),
            paged=paged.pop(),
            longest=int(found.max_seq_len_k),
        )

    def replays(
        self,
        layout: KVLayout,
        rank: int,
        batches: Sequence[Sequence[int]],
        *,
        rows: int,
        step: Step,
        draft_tokens: int,
    ) -> list[Replay]:
        backend, paged = self._make(layout, rows=rows, draft_tokens=draft_tokens)
        mode, device = self._mode_of(step), self._torch.device("cpu")
        # The graph's input, which its runner fills up as it pads a batch.
        seq_lens = self._tensor([PADDING_LEN] * rows)
        with _as_rank(layout, rank):
            backend._init_cuda_graph_metadata(rows, rows * step.tokens(draft_tokens), mode, seq_lens, device)
            captured = backend.decode_cuda_graph_metadata[rows]
            local = captured.seq_lens_k
            whole = seq_lens if captured.global_seq_lens_k is None else captured.global_seq_lens_k
            found = []
            for batch in batches:
                seq_lens.copy_(self._tensor([*batch, *[PADDING_LEN] * (rows - len(batch))]))
                self._replay(backend, rows=rows, seq_lens=seq_lens, mode=mode)
                found.append(
                    Replay(
                        global_lens=whole.tolist(), local_lens=local.tolist(), paged=paged.pop(), visible=[]
                    )
                )
        return found

    def visible(
        self, layout: KVLayout, rank: int, lengths: Sequence[int], *, draft_tokens: int
    ) -> list[list[int]]:
        whole = self._tensor([length + draft_tokens for length in lengths])
        arguments = {} if layout.interleave == 1 else {"interleave_size": layout.interleave}
        found = getattr(self._layout, _CHAIN)(whole, draft_tokens, layout.dcp_size, rank, **arguments)
        return [[int(length) for length in row] for row in found.view(-1, draft_tokens)]

    def _replay(self, backend: Any, *, rows: int, seq_lens: Any, mode: Any) -> None:
        arguments = {
            "bs": rows,
            "req_pool_indices": self._tensor(range(rows)),
            "seq_lens": seq_lens,
            "forward_mode": mode,
        }
        if hasattr(
            self._kind, _KEEPS_DECODE_LENS
        ):  # the release that has it also hands a plan of locations along
            arguments["plan"] = None
        backend._apply_cuda_graph_metadata(**arguments)

    def _make(self, layout: KVLayout, *, rows: int, draft_tokens: int) -> tuple[Any, list[list[int]]]:
        """A backend, and a list to which each page table adds the lengths that it would be filled for."""
        backend = object.__new__(self._kind)
        backend.num_draft_tokens = draft_tokens
        backend.page_size = layout.page_size
        backend.max_context_len = _CONTEXT_LEN
        backend.decode_cuda_graph_metadata = {}
        backend.decode_cuda_graph_kv_indices = self._torch.zeros((rows, 1), dtype=self._torch.int32)
        backend.kv_index_translator = SimpleNamespace(is_translating=False)
        backend._kv_shard_pool = None
        backend._calc_padded_blocks = lambda max_seq_len: 1
        paged: list[list[int]] = []
        backend._fill_dcp_block_kv_indices = _noting(paged)
        return backend, paged

    def _find_functions(self) -> frozenset[str]:
        found = {StepFunction.LENGTHS, StepFunction.PAGED, StepFunction.VERIFY_BUFFERS}
        if hasattr(self._kind, _KEEPS_DECODE_LENS):
            found.add(StepFunction.DECODE_BUFFERS)
        names = {named(function) for function in found}
        if hasattr(self._layout, _CHAIN):
            names |= {named(StepFunction.VISIBLE), named(StepFunction.VISIBLE, 2)}
        return frozenset(names)

    def _mode_of(self, step: Step) -> Any:
        return self._mode.TARGET_VERIFY if step is Step.VERIFY else self._mode.DECODE

    def _tensor(self, values: Sequence[int]) -> Any:
        return self._torch.tensor(list(values), dtype=self._torch.int64)


def _as_rank(layout: KVLayout, rank: int) -> Any:
    """One DCP group that fills its TP group: a backend sees no more of the topology than that."""
    group = ParallelConfig(tp_size=layout.dcp_size, dcp_size=layout.dcp_size)
    return inject(group, rank=rank, target="sglang")


def _noting(paged: list[list[int]]) -> Callable[[Any, Any, Any], None]:
    def note(block_kv_indices: Any, req_pool_indices: Any, local_seq_lens: Any) -> None:
        paged.append(local_seq_lens.tolist())

    return note


def _find_backend(package: str) -> Any:
    for module, name in _BACKENDS:
        try:
            backend = getattr(importlib.import_module(f"{_FOLDER}.{module}"), name)
        except ModuleNotFoundError as error:
            if error.name != f"{_FOLDER}.{module}":
                raise
            continue
        if hasattr(backend, _LOCAL_LENS):
            return backend
    tried = " nor ".join(name for _, name in _BACKENDS)
    raise InjectionError(f"{package}: neither {tried} knows the lengths of one rank of a DCP group")
