"""Fault `stride`: kernels take queries and LSEs for contiguous and read past the gaps between rows.

Right for tensors of their own. Wrong for views: queries cut out of a QKV product, LSEs that lie packed with the
partial outputs they belong to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from harness.refengine.seams import wrap
from harness.refengine.triton_kernels import calls

Call = Callable[..., Any]


def as_if_contiguous(x: Tensor) -> Tensor:
    """The elements that stand one after the other from where `x` begins, in the shape of `x`."""
    strides = [1]
    for size in reversed(x.shape[1:]):
        strides.insert(0, strides[0] * size)
    return x.as_strided(x.shape, strides)


def ignoring_strides_of_queries(kernel: Call) -> Call:
    """The same attention with the queries that the memory behind `q` would be."""

    def attend(q: Tensor, *others: Tensor, **how: Any) -> Any:
        return kernel(as_if_contiguous(q), *others, **how)

    return attend


def ignoring_strides_of_lses(kernel: Call) -> Call:
    """The same merge with the LSEs that the memory behind `lses` would be."""

    def merge(parts: Tensor, lses: Tensor, **how: Any) -> Any:
        return kernel(parts, as_if_contiguous(lses), **how)

    return merge


def install() -> None:
    """Wrap every kernel, in this process and those forked from it."""
    wrap(calls.DECODE_SPLITS, ignoring_strides_of_queries)
    wrap(calls.EXTEND, ignoring_strides_of_queries)
    wrap(calls.MERGE_PARTS, ignoring_strides_of_lses)
