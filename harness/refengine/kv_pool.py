"""One rank's KV pool: paged rows for keys and values, and a tag per row that says which token it holds.

Row 0 to page_size-1 form the reserved page 0, the dummy: tokens that other ranks own are written there, so
that the hot path needs no mask. Every other row starts poisoned with large finite values and is poisoned
again when its page is freed: a read past the end of a sequence gives wrong numbers, never plausible ones.
(Not NaN, since 0·NaN would leak through a masked softmax.) Tags are written with the same rows as the values,
so what `/kv_rows` reports is where the token really went.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from harness.errors import UsageError
from harness.refengine.layout_seams import page_rows
from harness.topology import KVLayout

# Any row of page 0 would do; readers also pad with it, under a mask.
DUMMY_ROW = 0

FREE = -1


class KVPool:
    """Keys and values of one rank: `kv` is [layers, page_size + rows, 2 (K, V), kv_heads, head_dim].

    `rows` counts usable rows, a whole number of pages, without the dummy page. `tags` is int64
    [page_size + rows, 3]: request index, position, token id, all -1 in a free row. Not safe across threads.
    Raises UsageError where there is no memory for it.
    """

    def __init__(
        self,
        *,
        layout: KVLayout,
        rows: int,
        num_layers: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        poison: float,
        device: torch.device | str = "cpu",
    ) -> None:
        if rows < layout.page_size or rows % layout.page_size:
            raise ValueError(f"{rows} rows are not a whole, positive number of pages of {layout.page_size}")
        self.layout = layout
        self.rows = rows
        self._poison = _poison_pattern(
            layout.page_size, kv_heads=kv_heads, head_dim=head_dim, poison=poison, dtype=dtype, device=device
        )
        pages = rows // layout.page_size + 1
        try:
            self.kv = self._poison.repeat(num_layers, pages, 1, 1, 1)
            self.tags = torch.full((rows + layout.page_size, 3), FREE, dtype=torch.int64, device=device)
        except RuntimeError as error:
            # All that torch says where the system gives it no memory; on GPUs it is a subclass.
            needed = num_layers * pages * self._poison.nbytes
            raise UsageError(f"no memory for a KV pool of {needed} bytes on each rank: {error}") from error

    @property
    def num_free_rows(self) -> int:
        """Usable rows that hold no token."""
        return int((self._usable_tags()[:, 0] == FREE).sum())

    def write(self, layer: int, rows: Tensor, kv: Tensor) -> None:
        """Put keys and values [n, 2, kv_heads, head_dim] into `rows` [n]; foreign tokens name DUMMY_ROW."""
        self.kv[layer].index_copy_(0, rows, kv)

    def write_tags(self, rows: Tensor, tags: Tensor) -> None:
        """Note which tokens `rows` now hold; `tags` is [n, 3] and `rows` the very tensor given to `write`."""
        self.tags.index_copy_(0, rows, tags)

    def read(self, layer: int, rows: Tensor) -> Tensor:
        """Keys and values [n, 2, kv_heads, head_dim] of `rows` [n]."""
        return self.kv[layer].index_select(0, rows)

    def free_pages(self, pages: Iterable[int]) -> None:
        """Poison and untag every row of the logical `pages`; their owner has ended."""
        for page in pages:
            rows = page_rows(self.layout, page)
            # One page of poison, or as much of it as there are rows.
            self.kv[:, rows.start : rows.stop] = self._poison[: len(rows)]
            self.tags[rows.start : rows.stop] = FREE

    def held_rows(self) -> list[list[int]]:
        """[row, request index, position, token id] of each usable row that holds a token, in row order."""
        tags = self._usable_tags()
        (held,) = torch.nonzero(tags[:, 0] != FREE, as_tuple=True)
        rows: list[list[int]] = torch.cat([held[:, None] + self.layout.page_size, tags[held]], dim=1).tolist()
        return rows

    def check_poison(self) -> bool:
        """Whether every free row still holds nothing but poison; False means somebody wrote out of bounds."""
        page_size = self.layout.page_size
        free = (self._usable_tags()[:, 0] == FREE).view(-1, page_size)
        usable = self.kv[:, page_size:].unflatten(1, (-1, page_size))
        intact = (usable == self._poison).flatten(3).all(dim=-1)
        return bool((intact | ~free).all())

    def _usable_tags(self) -> Tensor:
        return self.tags[self.layout.page_size :]


def _poison_pattern(
    page_size: int,
    *,
    kv_heads: int,
    head_dim: int,
    poison: float,
    dtype: torch.dtype,
    device: torch.device | str,
) -> Tensor:
    """One page of ±poison [page_size, 2, kv_heads, head_dim].

    Signs alternate along each head, so a query's product with poison is as often positive as negative;
    neighbour rows have opposite signs, so of two rows read by mistake at least one outweighs every real
    score.
    """
    row = torch.arange(page_size, device=device)[:, None, None, None]
    element = torch.arange(head_dim, device=device)
    sign = 1 - 2 * ((row + element) % 2)
    return (sign * poison).expand(page_size, 2, kv_heads, head_dim).to(dtype).contiguous()
