"""The runner on Triton kernels, interpreted: parity with the dense oracle, collectives, plans; and what refuses it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from engine_driver import make_runner, plan_pages, prompts, serve, worst_gap

from harness.errors import UsageError
from harness.refengine import layout_seams, seams
from harness.refengine.batch import Batch, ForwardMode, SequenceChunk
from harness.refengine.comm import Comms, ThreadWorld
from harness.refengine.config import AttentionBackend, DcpCommBackend, EngineConfig
from harness.refengine.launcher import launch
from harness.refengine.step_plan import DecodeReads, PackedReads, PagedReads, make_step_plan
from harness.refengine.triton_kernels import backend, installed
from harness.topology import KVLayout

AG_RS, A2A = DcpCommBackend.AG_RS, DcpCommBackend.A2A

# That of the torch backend; measured: 6e-6.
BOUND = 2e-5


def config(tp: int, dcp: int, **others: object) -> EngineConfig:
    given = EngineConfig(tp=tp, dcp=dcp, page_size=32, attention_backend=AttentionBackend.TRITON)
    return replace(given, **others)


@pytest.mark.parametrize(
    ("tp", "dcp", "others"),
    [
        (1, 1, {}),
        (4, 4, {"dcp_comm_backend": A2A}),
        (4, 4, {"dcp_comm_backend": AG_RS}),
        (4, 2, {"dcp_comm_backend": A2A, "page_size": 4, "chunked_prefill_size": 7}),
        (2, 2, {"interleave": 4, "page_size": 4, "model": "builtin:random-gqa-kv1"}),
        (2, 1, {"model": "builtin:random-gqa-kv8", "chunked_prefill_size": 5}),
    ],
)
def test_topologies_equal_the_dense_model(tp: int, dcp: int, others: dict[str, object]) -> None:
    """Ragged batches, prompts in chunks that align with nothing, shards and splits that are empty."""
    assert worst_gap(config(tp, dcp, **others), [1, 3, 5, 34], new_tokens=2) <= BOUND


def test_a_prefix_of_several_blocks_equals_the_dense_model() -> None:
    """The last chunk's is 96 tokens long, a block of the extend kernel 64; dcp 1 would be wrong in the same way."""
    assert worst_gap(config(2, 2, chunked_prefill_size=24), [99], new_tokens=1) <= BOUND


def test_a_bf16_pool_is_as_close_as_in_torch() -> None:
    """Rounding weights and pool to 8 bits costs 0.06 in either; the bit patterns, taken for numbers, cost all."""
    ours = config(2, 2, dtype="bf16")
    torchs = replace(ours, attention_backend=AttentionBackend.TORCH)
    lengths = [1, 5, 20]
    assert worst_gap(ours, lengths, new_tokens=2) < 2 * worst_gap(torchs, lengths, new_tokens=2)


def one_step(mode: ForwardMode, *, start: int, counts: list[int], cfg: EngineConfig) -> Batch:
    pages = plan_pages(cfg, [start + count for count in counts])
    chunks = [
        SequenceChunk(rid=str(n), index=n, tokens=tuple(range(65, 65 + count)), start=start, pages=pages[n])
        for n, count in enumerate(counts)
    ]
    return Batch(mode=mode, chunks=tuple(chunks))


@pytest.mark.parametrize(
    ("merge", "mode", "per_layer"),
    [
        (AG_RS, ForwardMode.DECODE, {"all_gather": 2, "reduce_scatter": 1}),
        (A2A, ForwardMode.DECODE, {"all_gather": 1, "all_to_all": 1}),
        (A2A, ForwardMode.EXTEND, {"all_gather": 1}),
    ],
)
def test_a_step_makes_the_collectives_of_the_torch_backend(
    merge: DcpCommBackend, mode: ForwardMode, per_layer: dict[str, int]
) -> None:
    cfg = config(2, 2, dcp_comm_backend=merge)

    def rank_main(rank: int, comms: Comms) -> dict[str, int]:
        runner = make_runner(cfg, rank, comms)
        runner.forward(one_step(mode, start=9, counts=[1], cfg=cfg))
        return comms.dcp.counts

    for counts in ThreadWorld(cfg).run(rank_main):
        assert {verb: n / 2 for verb, n in counts.items() if n} == per_layer


@pytest.mark.parametrize("interleave", [1, 4])
@pytest.mark.parametrize("rank", range(4))
def test_page_table_and_length_name_the_rows_that_torch_reads(rank: int, interleave: int) -> None:
    cfg = config(4, 4, page_size=4, interleave=interleave)
    layout = KVLayout(dcp_size=4, page_size=4, interleave=interleave)
    batch = one_step(ForwardMode.DECODE, start=37, counts=[1, 1], cfg=cfg)
    torchs, paged = (make_step_plan(batch, layout, rank, paged=paged).reads for paged in (False, True))
    assert isinstance(torchs, DecodeReads)
    assert isinstance(paged, PagedReads)
    for b, length in enumerate(paged.lens.tolist()):
        rows = [int(paged.table[b, n // 4]) * 4 + n % 4 for n in range(length)]
        assert rows == torchs.rows[b][~torchs.padding[b]].tolist()


def test_a_wrong_length_stays_within_the_page_table() -> None:
    """Past it, a kernel would read whatever memory follows, and end the process."""
    cfg = config(2, 2, page_size=4)
    healthy = seams.patch(layout_seams.LOCAL_KV_LEN, lambda layout, lengths, rank: lengths * 100)
    try:
        batch = one_step(ForwardMode.DECODE, start=9, counts=[1, 1], cfg=cfg)
        reads = make_step_plan(batch, cfg.layout(), 1, paged=True).reads
    finally:
        seams.patch(layout_seams.LOCAL_KV_LEN, healthy)
    assert isinstance(reads, PagedReads)
    assert reads.lens.tolist() == [reads.table.shape[1] * 4] * 2


def test_packed_sequences_are_told_by_their_ends() -> None:
    cfg = config(2, 2)
    batch = one_step(ForwardMode.EXTEND, start=3, counts=[2, 5, 1], cfg=cfg)
    reads = make_step_plan(batch, cfg.layout(), 1, paged=True).reads
    assert isinstance(reads, PackedReads)
    assert reads.new_ends.tolist() == [0, 2, 7, 8]
    assert reads.prefix_ends.tolist() == [0, 3, 6, 9]
    assert (reads.longest, len(reads.order)) == (5, 9)


def test_the_interpreter_is_not_given_the_pool_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes the memory of its arguments anew, which a thread that receives KV may be writing to."""
    cfg = config(1, 1)
    given: list[int] = []

    def watched(q: torch.Tensor, kv: torch.Tensor, *others: torch.Tensor, **how: object) -> object:
        given.append(kv.untyped_storage().data_ptr())
        return healthy(q, kv, *others, **how)

    healthy = backend.local_attention
    monkeypatch.setattr(backend, "local_attention", watched)

    def rank_main(rank: int, comms: Comms) -> int:
        runner = make_runner(cfg, rank, comms)
        serve(runner, cfg, prompts([3]), new_tokens=1)
        return runner.pool.kv.untyped_storage().data_ptr()

    (pool,) = ThreadWorld(cfg).run(rank_main)
    assert len(given) == 2 and pool not in given


def test_without_triton_a_launch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "find_spec", {"numpy": True}.get)
    with pytest.raises(UsageError, match=r"needs Triton.*pip install 'harness\[triton\]'"):
        launch(EngineConfig(attention_backend=AttentionBackend.TRITON))


def in_new_process(code: str) -> subprocess.CompletedProcess[str]:
    """Without the variable, which this process may have set itself."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )


def test_the_command_says_so_and_exits_2() -> None:
    code = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "triton" else found(name, *rest)
from harness.cli.main import main
sys.argv = ["harness", "engine", "serve", "--attention-backend", "triton"]
sys.exit(main())
"""
    done = in_new_process(code)
    assert done.returncode == 2, done.stderr
    assert "pip install 'harness[triton]'" in done.stderr


def test_triton_imported_too_early_is_told() -> None:
    """It would have no way to run on a CPU, and say so only in the middle of the first request."""
    code = """
import triton
from harness.refengine.triton_kernels.loading import prepare_kernels
prepare_kernels(cuda=False)
"""
    done = in_new_process(code)
    assert done.returncode == 1
    assert "UsageError: Triton was imported before TRITON_INTERPRET=1 was set" in done.stderr


def test_the_torch_backend_never_imports_triton() -> None:
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from engine_driver import worst_gap
from harness.refengine.config import EngineConfig
worst_gap(EngineConfig(tp=2, dcp=2), [3], new_tokens=1)
sys.exit("triton" in sys.modules)
"""
    done = in_new_process(code)
    assert done.returncode == 0, done.stderr
