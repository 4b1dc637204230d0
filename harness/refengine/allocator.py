"""Logical KV pages: a free list. The same on every rank, since every rank frees and takes in the same order.

A logical page holds `page_size · dcp_size` tokens, `page_size` rows of them on each rank. Page 0 is the
reserved dummy that padding writes to; it is never handed out. Giving back a page that is not out is a bug of
the caller and raises ValueError at once: a page with two owners would corrupt both their caches silently.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class PageAllocator:
    """Hands out pages 1 to `num_pages`, those longest free first: a stale read then finds poison."""

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self._free = deque(range(1, num_pages + 1))
        self._taken: set[int] = set()

    @property
    def num_free(self) -> int:
        return len(self._free)

    def take(self, count: int) -> tuple[int, ...]:
        """`count` pages, or ValueError where fewer are free: callers look at `num_free` first."""
        if not 0 <= count <= len(self._free):
            raise ValueError(f"{count} pages asked for, {len(self._free)} of {self.num_pages} are free")
        pages = tuple(self._free.popleft() for _ in range(count))
        self._taken.update(pages)
        return pages

    def give_back(self, pages: Iterable[int]) -> None:
        """Make pages free again. Raises ValueError for a page that is not out, the reserved one included."""
        for page in pages:
            if page not in self._taken:
                raise ValueError(f"page {page} is given back but is not out")
            self._taken.remove(page)
            self._free.append(page)
