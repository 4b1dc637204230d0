"""What ranks say to each other: the verbs of a `Communicator`, the same under every backend.

A rank's code is written for one rank and calls the public verbs only. A verb works in three phases: it
counts itself, it brings its tensor into the one shape that backends know (`[size, ...]`, contiguous), and it
lets the backend move bytes. What is counted, what is accepted and how sums are taken is decided here, once.

Sums are taken in rank order 0, 1, ... size - 1, so all backends agree bit for bit, and so do all ranks.
Results never share memory with the argument. Failure rule: bad arguments raise `CommError` before anything
is sent; a backend that sees ranks disagree raises `CommError` rather than mix up their bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from harness.errors import EngineError


class CommError(EngineError):
    """A collective cannot be: its arguments do not fit the group, ranks disagree, or a peer is gone."""


class Verb(StrEnum):
    """The kinds of collectives; the keys of `Communicator.counts`."""

    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    ALL_REDUCE = "all_reduce"
    BROADCAST = "broadcast"
    BARRIER = "barrier"


class Call(NamedTuple):
    """What a rank has called, as far as all ranks of the group must say the same of it.

    `along` is the dim from the front of what joins or splits along one, the source of a broadcast, else 0.
    """

    verb: Verb
    along: int = 0

    def detail(self) -> str:
        """What tells it from a call of the same verb: ` along dim 1`, ` from rank 0`; empty where nothing can."""
        return _DETAILS[self.verb].format(self.along) if self.verb in _DETAILS else ""


_DETAILS = {
    Verb.ALL_GATHER: " along dim {}",
    Verb.REDUCE_SCATTER: " along dim {}",
    Verb.BROADCAST: " from rank {}",
}

# Summed in fp32 and rounded once, so that a sum over 8 ranks loses no more than a sum over 2.
_SUMMED_WIDER = (torch.bfloat16, torch.float16)


class Communicator(ABC):
    """One rank's end of one group. `name` is "tp" or "dcp", `counts` says how often each verb was called.

    Every rank of the group must call the same verbs in the same order, with equal shapes, dtypes, dims and sources.
    """

    def __init__(self, *, name: str, rank: int, size: int) -> None:
        self.name = name
        self.rank = rank
        self.size = size
        self.counts: dict[str, int] = {verb.value: 0 for verb in Verb}

    def all_gather(self, x: Tensor, *, dim: int = 0) -> Tensor:
        """The tensors of all ranks joined along `dim` in rank order: [.., n, ..] gives [.., size * n, ..]."""
        dim = self._start(Verb.ALL_GATHER, x, dim)
        if self._is_local(x):
            return x.repeat([self.size if d == dim else 1 for d in range(x.ndim)])
        return self._gather(Call(Verb.ALL_GATHER, dim), x.contiguous()).movedim(0, dim).flatten(dim, dim + 1)

    def reduce_scatter(self, x: Tensor, *, dim: int = 0) -> Tensor:
        """This rank's slice along `dim` of the sum over ranks: [.., size * n, ..] gives [.., n, ..].

        Raises CommError where the length of `dim` is not a multiple of the group's size.
        """
        dim = self._start(Verb.REDUCE_SCATTER, x, dim)
        if x.shape[dim] % self.size:
            raise CommError(
                f"reduce_scatter over {self.name} cannot split dim {dim} of length {x.shape[dim]} "
                f"into {self.size} equal parts"
            )
        width = x.shape[dim] // self.size
        parts = x.view(*x.shape[:dim], self.size, width, *x.shape[dim + 1 :]).movedim(dim, 0)
        if self._is_local(x):
            return parts[0].clone(memory_format=torch.contiguous_format)
        return self._sum_of_parts(Call(Verb.REDUCE_SCATTER, dim), parts.contiguous())

    def all_to_all(self, x: Tensor) -> Tensor:
        """[size, ...] to [size, ...]: row i of the result is what rank i had in its row `self.rank`."""
        self._start(Verb.ALL_TO_ALL, x, 0)
        if x.shape[0] != self.size:
            raise CommError(
                f"all_to_all over {self.name} needs one row for each of {self.size} ranks, found {x.shape[0]}"
            )
        if self._is_local(x):
            return x.clone(memory_format=torch.contiguous_format)
        return self._transpose(Call(Verb.ALL_TO_ALL), x.contiguous())

    def all_reduce(self, x: Tensor) -> Tensor:
        """The sum over ranks, in a new tensor, bit-identical on each rank."""
        self._count(Verb.ALL_REDUCE)
        if self._is_local(x):
            return x.clone(memory_format=torch.contiguous_format)
        return self._sum(x.contiguous())

    def broadcast(self, x: Tensor, *, src: int = 0) -> Tensor:
        """The tensor of group rank `src`; the others pass one of equal shape and dtype, its values unused."""
        self._count(Verb.BROADCAST)
        self._check_source(src)
        if self._is_local(x):
            return x.clone(memory_format=torch.contiguous_format)
        return self._broadcast(x.contiguous(), src=src)

    def broadcast_bytes(self, data: bytes | None, *, src: int = 0) -> bytes:
        """The bytes of group rank `src`, whose length only it knows; the others pass None.

        Counts as one `broadcast`, however many messages a backend needs.
        """
        self._count(Verb.BROADCAST)
        self._check_source(src)
        if (data is None) == (self.rank == src):
            raise CommError(
                f"broadcast_bytes from rank {src} of {self.name}: rank {self.rank} must pass "
                f"{'its bytes' if self.rank == src else 'None'}"
            )
        if data is not None and self.size == 1:
            return data
        return self._broadcast_bytes(data, src=src)

    def barrier(self) -> None:
        """Returns on no rank before all have called it."""
        self._count(Verb.BARRIER)
        if self.size > 1:
            self._barrier()

    def close(self) -> None:
        """Give back what the backend holds. Harmless when repeated; no verb may follow."""
        return

    def _count(self, verb: Verb) -> None:
        self.counts[verb] += 1

    def _start(self, verb: Verb, x: Tensor, dim: int) -> int:
        """Count, and turn a possibly negative `dim` into its place from the front."""
        self._count(verb)
        ndim: int = x.ndim
        if type(dim) is not int:
            raise CommError(f"{verb} over {self.name}: dim is {dim!r}, but must be an integer")
        if not -ndim <= dim < ndim:
            raise CommError(f"{verb} over {self.name}: a tensor of {ndim} dims has no dim {dim}")
        return dim % ndim

    def _check_source(self, src: int) -> None:
        if type(src) is not int or not 0 <= src < self.size:
            raise CommError(f"broadcast over {self.name}: src is {src!r}, ranks are 0 to {self.size - 1}")

    def _is_local(self, x: Tensor) -> bool:
        """Nothing to send: alone in the group, or no element (shapes agree, so this holds on all ranks)."""
        return self.size == 1 or x.numel() == 0

    # What a backend provides. Tensors are contiguous and not empty, the group has two ranks or more.
    # `call` is what the caller asked for: backends that can compare it between ranks.

    def _sum(self, x: Tensor) -> Tensor:
        """The sum over ranks; replaced where there is a better way than to gather and add."""
        return sum_in_rank_order(self._gather(Call(Verb.ALL_REDUCE), x))

    def _sum_of_parts(self, call: Call, parts: Tensor) -> Tensor:
        """[size, ...] to [...]: the sum over ranks of row `self.rank`; replaced where the library has it."""
        return sum_in_rank_order(self._transpose(call, parts))

    @abstractmethod
    def _gather(self, call: Call, x: Tensor) -> Tensor:
        """[...] to [size, ...], row i from rank i."""

    @abstractmethod
    def _transpose(self, call: Call, x: Tensor) -> Tensor:
        """[size, ...] to [size, ...], row i of the result is row `self.rank` of rank i."""

    @abstractmethod
    def _broadcast(self, x: Tensor, *, src: int) -> Tensor:
        """A new tensor with the values of rank `src`."""

    @abstractmethod
    def _broadcast_bytes(self, data: bytes | None, *, src: int) -> bytes: ...

    @abstractmethod
    def _barrier(self) -> None: ...


def sum_in_rank_order(parts: Tensor) -> Tensor:
    """The sum over the first dim of [2 or more, ...], added strictly in the order of rows; a new tensor.

    `torch.sum` may add in another order depending on the shape, so it would differ between backends
    that cut messages differently.
    """
    wide = parts.to(torch.float32) if parts.dtype in _SUMMED_WIDER else parts
    first, second, *others = wide.unbind(0)
    total = torch.add(first, second)
    for part in others:
        total.add_(part)
    return total.to(parts.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comms:
    """Both groups of one rank: the whole TP group, and the DCP group inside it."""

    tp: Communicator
    dcp: Communicator

    def close(self) -> None:
        """Close both; a rank calls this as its last act, and nothing is awaited."""
        self.dcp.close()
        self.tp.close()


class Plumbing(Protocol):
    """What must exist before ranks start so that they find each other; each rank connects its end once."""

    def connect(self, rank: int) -> Comms:
        """Both communicators of TP rank `rank`; blocks until its peers connect where a backend needs that."""
