"""The runner at every topology, pools poisoned: parity with the dense oracle, rows, capacity, collectives."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from engine_driver import Request, gap, make_runner, plan_pages, prompts, serve, worst_gap
from torch import Tensor

from harness.errors import UsageError
from harness.refengine.batch import Batch, ForwardMode, SequenceChunk
from harness.refengine.comm import Comms, ThreadWorld
from harness.refengine.config import DcpCommBackend, EngineConfig
from harness.refengine.runner import ModelRunner
from harness.topology import KVLayout

A2A = DcpCommBackend.A2A

# Measured: 6e-6 at every topology, dcp 1 included. The smallest fault moves a log-probability by 0.3.
BOUND = 2e-5

# Every ragged case up to one past dcp 8, and both sides of a page edge.
LENGTHS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 63, 64, 65]

# Of the built-in models.
LAYERS = 2

TOPOLOGIES = [(1, 1), (2, 2), (4, 4), (8, 8), (4, 2), (8, 2), (8, 4)]


def config(tp: int, dcp: int, **others: object) -> EngineConfig:
    return replace(EngineConfig(tp=tp, dcp=dcp, page_size=4, chunked_prefill_size=16), **others)


@pytest.mark.parametrize("merge", list(DcpCommBackend))
@pytest.mark.parametrize(("tp", "dcp"), TOPOLOGIES)
def test_every_topology_equals_the_dense_model(tp: int, dcp: int, merge: DcpCommBackend) -> None:
    """Ragged batch, prompts longer than 16 prefilled in chunks, then decoded together."""
    assert worst_gap(config(tp, dcp, dcp_comm_backend=merge), LENGTHS) <= BOUND


@pytest.mark.parametrize(("page", "interleave"), [(1, 1), (16, 1), (4, 4), (16, 4)])
@pytest.mark.parametrize(("tp", "dcp"), [(4, 4), (4, 2)])
def test_every_page_size_and_interleave(tp: int, dcp: int, page: int, interleave: int) -> None:
    assert worst_gap(config(tp, dcp, page_size=page, interleave=interleave), LENGTHS) <= BOUND


@pytest.mark.parametrize("kv", [1, 8])
@pytest.mark.parametrize(("tp", "dcp"), [(1, 1), (4, 2), (4, 4), (8, 2)])
def test_every_number_of_kv_heads(tp: int, dcp: int, kv: int) -> None:
    assert worst_gap(config(tp, dcp, model=f"builtin:random-gqa-kv{kv}"), [1, 3, 5, 33]) <= BOUND


@pytest.mark.parametrize("chunk", [1, 6, 7, 256])
def test_chunks_that_do_not_align_with_anything(chunk: int) -> None:
    unaligned = config(4, 4, page_size=4, interleave=4, chunked_prefill_size=chunk)
    assert worst_gap(unaligned, [1, 13, 24, 41], new_tokens=4) <= BOUND


def test_a_batch_of_257_sequences() -> None:
    lengths = [1 + n % 5 for n in range(257)]
    large = config(4, 4, dcp_comm_backend=A2A, chunked_prefill_size=64)
    assert worst_gap(large, lengths, new_tokens=2, every=11) <= BOUND


def test_another_seed_is_another_model_and_as_exact() -> None:
    assert worst_gap(config(4, 4, seed=11), [1, 5, 66]) <= BOUND


def test_bf16_weights_and_pool_stay_close_to_exact_arithmetic() -> None:
    """Rounding to 8 bits of mantissa costs 0.06 to 0.08 at every topology, dcp 1 included."""
    dense = worst_gap(config(1, 1, dtype="bf16"), LENGTHS)
    sharded = worst_gap(config(4, 4, dtype="bf16"), LENGTHS)
    assert BOUND < dense < 0.15
    assert sharded < 2 * dense


def brute_force_rows(layout: KVLayout, request: Request, rank: int) -> list[list[int]]:
    """[row, index, position, token] of a rank: tokens dealt out in turns, rows filled page by page."""
    mine: list[int] = []
    position = 0
    while position < len(request.tokens):
        for turn in range(layout.dcp_size):
            dealt = range(position, min(position + layout.interleave, len(request.tokens)))
            mine.extend(dealt if turn == rank else ())
            position += layout.interleave
    rows = [row for page in request.pages for row in layout.rows_of_page(page)]
    held = zip(rows, mine, strict=False)
    return [[row, request.index, position, request.tokens[position]] for row, position in held]


@pytest.mark.parametrize(("tp", "dcp", "interleave"), [(4, 4, 1), (4, 4, 4), (4, 2, 2), (8, 8, 1), (2, 1, 1)])
def test_every_row_holds_the_token_that_dealing_by_hand_gives(tp: int, dcp: int, interleave: int) -> None:
    cfg = config(tp, dcp, interleave=interleave, max_total_tokens=1024)

    def rank_main(rank: int, comms: Comms) -> float:
        runner = make_runner(cfg, rank, comms)
        requests = serve(runner, cfg, prompts([1, 6, 17, 40]), new_tokens=5)
        expected = [row for r in requests for row in brute_force_rows(cfg.layout(), r, rank % dcp)]
        assert runner.pool.held_rows() == sorted(expected)
        assert runner.pool.num_free_rows == runner.capacity.rows_per_rank - len(expected)
        assert runner.pool.check_poison()
        for request in requests:
            runner.pool.free_pages(request.pages)
        assert runner.pool.held_rows() == []
        assert runner.pool.check_poison()
        # The same pages serve other requests as well as they did the first.
        again = serve(runner, cfg, prompts([30, 2, 9], seed=8), new_tokens=5)
        return max(gap(request, cfg) for request in again)

    assert max(ThreadWorld(cfg).run(rank_main)) <= BOUND


def one_step(mode: ForwardMode, *, start: int, count: int, all_logits: bool, cfg: EngineConfig) -> Batch:
    pages = plan_pages(cfg, [start + count, start + count])
    tokens = tuple(range(65, 65 + count))
    chunks = [
        SequenceChunk(rid=str(n), index=n, tokens=tokens, start=start, pages=pages[n], all_logits=all_logits)
        for n in range(2)
    ]
    return Batch(mode=mode, chunks=tuple(chunks))


@pytest.mark.parametrize(
    ("merge", "mode", "start", "per_layer"),
    [
        (DcpCommBackend.AG_RS, ForwardMode.DECODE, 9, {"all_gather": 2, "reduce_scatter": 1}),
        (A2A, ForwardMode.DECODE, 9, {"all_gather": 1, "all_to_all": 1}),
        (A2A, ForwardMode.EXTEND, 9, {"all_gather": 1}),
        (A2A, ForwardMode.EXTEND, 0, {}),
    ],
)
def test_a_step_makes_as_few_collectives_as_it_can(
    merge: DcpCommBackend, mode: ForwardMode, start: int, per_layer: dict[str, int]
) -> None:
    cfg = config(4, 2, dcp_comm_backend=merge)

    def rank_main(rank: int, comms: Comms) -> tuple[dict[str, int], dict[str, int]]:
        runner = make_runner(cfg, rank, comms)
        runner.forward(one_step(mode, start=start, count=1, all_logits=False, cfg=cfg))
        return comms.tp.counts, comms.dcp.counts

    for tp_counts, dcp_counts in ThreadWorld(cfg).run(rank_main):
        assert {verb: n / LAYERS for verb, n in dcp_counts.items() if n} == per_layer
        assert {verb: n / LAYERS for verb, n in tp_counts.items() if n} == {"all_reduce": 2}


def test_without_dcp_no_dcp_collective_is_made() -> None:
    cfg = config(2, 1)

    def rank_main(rank: int, comms: Comms) -> dict[str, int]:
        serve(make_runner(cfg, rank, comms), cfg, prompts([20]), new_tokens=2)
        return comms.dcp.counts

    for counts in ThreadWorld(cfg).run(rank_main):
        assert not any(counts.values())


def test_logits_are_asked_for_by_row() -> None:
    cfg = config(2, 2)

    def rank_main(rank: int, comms: Comms) -> list[Tensor]:
        runner = make_runner(cfg, rank, comms)
        every = one_step(ForwardMode.EXTEND, start=0, count=3, all_logits=True, cfg=cfg)
        last = one_step(ForwardMode.EXTEND, start=0, count=3, all_logits=False, cfg=cfg)
        return [runner.forward(every), runner.forward(last), runner.forward(every, want_logits=False)]

    for every, last, nothing in ThreadWorld(cfg).run(rank_main):
        assert (every.shape, last.shape, nothing.shape) == ((6, 258), (2, 258), (0, 258))
        assert every.dtype == torch.float32
        torch.testing.assert_close(every[[2, 5]], last)


def capacity_of(cfg: EngineConfig) -> tuple[int, int, int]:
    def rank_main(rank: int, comms: Comms) -> ModelRunner:
        return make_runner(cfg, rank, comms)

    runner = ThreadWorld(cfg).run(rank_main)[0]
    return runner.row_bytes, runner.capacity.rows_per_rank, runner.capacity.max_total_num_tokens


def test_capacity_counts_bytes_of_rows_less_the_dummy_page() -> None:
    """2 layers, K and V, 16 elements of 4 bytes: 256 B a KV head. tp 4 dcp 4 keeps both heads, tp 2 one."""
    budget = 512 * 1024
    assert capacity_of(config(4, 4, kv_bytes=budget)) == (512, 1020, 4080)
    assert capacity_of(config(2, 1, kv_bytes=budget)) == (256, 2044, 2044)
    assert capacity_of(config(4, 4, kv_bytes=budget, dtype="bf16")) == (256, 2044, 8176)


def test_the_aggregate_cap_is_cut_to_whole_pages() -> None:
    assert capacity_of(config(4, 4, max_total_tokens=100))[1:] == (24, 96)


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({"max_total_tokens": 15}, r"--max-total-tokens is 15; .* takes 16 tokens"),
        ({"kv_bytes": 4000}, "4000 B leaves no page"),
        ({"model": "builtin:none"}, "unknown model"),
    ],
)
def test_what_cannot_run_is_refused_with_the_numbers(others: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        capacity_of(config(4, 4, **others))
