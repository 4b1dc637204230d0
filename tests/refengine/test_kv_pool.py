"""The pool keeps what is written, poisons what is free, and tells which token each row holds."""

from __future__ import annotations

import pytest
import torch

from harness.refengine.kv_pool import DUMMY_ROW, KVPool
from harness.topology import KVLayout

PAGE, PAGES, LAYERS = 4, 6, 2


@pytest.fixture
def pool() -> KVPool:
    return make_pool()


def make_pool(dtype: torch.dtype = torch.float32) -> KVPool:
    return KVPool(
        layout=KVLayout(dcp_size=2, page_size=PAGE),
        rows=PAGE * PAGES,
        num_layers=LAYERS,
        kv_heads=2,
        head_dim=8,
        dtype=dtype,
        poison=1e4,
    )


def put(pool: KVPool, rows: list[int], *, index: int = 5) -> torch.Tensor:
    kv = torch.randn(len(rows), 2, 2, 8, dtype=torch.float32).to(pool.kv.dtype)
    for layer in range(LAYERS):
        pool.write(layer, torch.tensor(rows), kv)
    tags = [[index, place, 100 + place] for place in range(len(rows))]
    pool.write_tags(torch.tensor(rows), torch.tensor(tags))
    return kv


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_new_pool_is_free_and_poisoned(dtype: torch.dtype) -> None:
    pool = make_pool(dtype)
    assert pool.kv.shape == (LAYERS, PAGE * (PAGES + 1), 2, 2, 8)
    assert pool.num_free_rows == PAGE * PAGES
    assert pool.held_rows() == []
    assert pool.check_poison()
    assert bool((pool.kv.abs() > 9_000).all())
    assert bool(pool.kv.isfinite().all())


def test_rows_hold_what_was_written_and_say_which_token(pool: KVPool) -> None:
    kv = put(pool, [9, 4, 20])
    assert torch.equal(pool.read(1, torch.tensor([9, 4, 20])), kv)
    assert pool.held_rows() == [[4, 5, 1, 101], [9, 5, 0, 100], [20, 5, 2, 102]]
    assert pool.num_free_rows == PAGE * PAGES - 3
    assert pool.check_poison()


def test_tokens_of_other_ranks_leave_no_trace(pool: KVPool) -> None:
    put(pool, [DUMMY_ROW, DUMMY_ROW])
    assert pool.held_rows() == []
    assert pool.num_free_rows == PAGE * PAGES
    assert pool.check_poison()


def test_freed_pages_are_poisoned_again_and_others_are_kept(pool: KVPool) -> None:
    put(pool, [4, 5, 6, 7, 8])
    pool.free_pages([1])
    assert pool.held_rows() == [[8, 5, 4, 104]]
    assert pool.check_poison()
    assert bool((pool.read(0, torch.tensor([4, 5, 6, 7])).abs() == 1e4).all())


@pytest.mark.parametrize("layer", range(LAYERS))
def test_a_stray_write_into_a_free_row_is_noticed(pool: KVPool, layer: int) -> None:
    put(pool, [4, 5])
    pool.kv[layer, 6, 1, 0, 3] = 0.5
    assert not pool.check_poison()


def test_poison_has_both_signs_in_every_head_and_differs_between_neighbours(pool: KVPool) -> None:
    heads = pool.kv[0, :, 0, 0]
    assert bool((heads.sum(dim=-1) == 0).all())
    assert bool((heads[0] == -heads[1]).all())


@pytest.mark.parametrize("rows", [0, PAGE - 1, PAGE + 1])
def test_rows_are_whole_pages(rows: int) -> None:
    with pytest.raises(ValueError, match=f"{rows} rows"):
        KVPool(
            layout=KVLayout(dcp_size=2, page_size=PAGE),
            rows=rows,
            num_layers=1,
            kv_heads=1,
            head_dim=2,
            dtype=torch.float32,
            poison=1e4,
        )
