"""The processes that train together: who takes which shard, and sums over all of them.

Two processes talk over gloo on the loopback device and meet at a file, so no port can be taken. Each has one
torch thread: more of them fight over the cores, and their sums are in no fixed order.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from reference_training.plan import SHARDS

Argument = TypeVar("Argument")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """This process among `size`."""

    rank: int
    size: int

    @property
    def shards(self) -> range:
        """Those of this process."""
        return range(self.rank, SHARDS, self.size)

    def sum(self, tensor: Tensor) -> Tensor:
        """Over all processes, in place; with two of them the order of the terms cannot matter."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def texts(self, text: str) -> list[str]:
        """What every process told, in order of rank."""
        if self.size == 1:
            return [text]
        told: list[str | None] = [None] * self.size
        dist.all_gather_object(told, text)
        return [one or "" for one in told]


def run_together(size: int, work: Callable[[Group, Argument], None], argument: Argument) -> None:
    """Do `work(group, argument)` in `size` processes, this one being rank 0; return when all are through.

    Where one process dies, the others' next sum fails with gloo's error.
    """
    with tempfile.TemporaryDirectory(prefix="train-") as folder:
        meeting = Path(folder) / "meeting"
        context = multiprocessing.get_context("spawn")
        others = [
            context.Process(target=_be_rank, args=(rank, size, meeting, work, argument), daemon=True)
            for rank in range(1, size)
        ]
        for other in others:
            other.start()
        _be_rank(0, size, meeting, work, argument)
        for other in others:
            other.join()


def _be_rank(
    rank: int, size: int, meeting: Path, work: Callable[[Group, Argument], None], argument: Argument
) -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if size > 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size)
    work(Group(rank=rank, size=size), argument)
    if size > 1:
        dist.destroy_process_group()
