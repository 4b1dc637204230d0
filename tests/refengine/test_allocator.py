"""The page allocator against a plain set of pages."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.refengine.allocator import PageAllocator


@settings(max_examples=60, deadline=None)
@given(num_pages=st.integers(0, 12), moves=st.lists(st.integers(-6, 6), max_size=40))
def test_never_hands_out_a_page_twice_nor_the_reserved_one(num_pages: int, moves: list[int]) -> None:
    """Positive moves take that many pages, negative ones give the oldest allocation back."""
    allocator = PageAllocator(num_pages)
    held: list[tuple[int, ...]] = []
    for move in moves:
        if move < 0 and held:
            allocator.give_back(held.pop(0))
        elif move >= 0 and move <= allocator.num_free:
            held.append(allocator.take(move))
        out = [page for pages in held for page in pages]
        assert len(out) == len(set(out))
        assert set(out) <= set(range(1, num_pages + 1))
        assert allocator.num_free == num_pages - len(out)


def test_refuses_what_is_not_there() -> None:
    allocator = PageAllocator(3)
    with pytest.raises(ValueError, match=r"4 pages asked for, 3 of 3 are free"):
        allocator.take(4)
    assert allocator.num_free == 3


@pytest.mark.parametrize("page", [0, 4, -1])
def test_refuses_a_page_that_is_not_out(page: int) -> None:
    allocator = PageAllocator(3)
    allocator.take(3)
    with pytest.raises(ValueError, match=f"page {page} is given back but is not out"):
        allocator.give_back([page])


def test_refuses_to_free_twice() -> None:
    allocator = PageAllocator(3)
    pages = allocator.take(2)
    allocator.give_back(pages)
    with pytest.raises(ValueError, match="is not out"):
        allocator.give_back(pages)


def test_a_freed_page_is_used_last() -> None:
    allocator = PageAllocator(3)
    first = allocator.take(1)
    allocator.give_back(first)
    assert first[0] not in allocator.take(2)
