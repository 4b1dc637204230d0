"""The groups that the package's own `initialize_model_parallel` would build, recorded where it would build them.

Only the outer world is replaced: torch.distributed's rank and size, the class that opens communicators, and the
platform guard that refuses DCP on a CPU, each for the length of that one call. The rank lists, and the accessors that
are read afterwards, are the package's.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from harness.topology.config import ParallelConfig
from harness.topology.targets import sglang_published
from harness.topology.targets.detect import Generation, SglangTarget
from harness.topology.targets.frames import CONTEXT_MODULE, ProcessState, require_innermost

_STATE_MODULE = "sglang.srt.distributed.parallel_state"


@dataclass(frozen=True, slots=True)
class BuiltGroups:
    """`seat` is DCP rank and size as the package's accessors answer once the groups are up."""

    tp: list[list[int]]
    dcp: list[list[int]]
    seat: tuple[int, int]


class _RecordedGroup:
    """Stands where the package opens communicators: keeps the rank lists, knows its place in them."""

    pynccl_comm = None

    def __init__(self, rank: int, tables: dict[str, list[list[int]]], **arguments: Any) -> None:
        table = [list(group) for group in arguments["group_ranks"]]
        tables[arguments["group_name"]] = table
        self.ranks = next(group for group in table if rank in group)
        self.rank_in_group = self.ranks.index(rank)
        self.world_size = len(self.ranks)
        self.rank = rank


def build(package: SglangTarget, config: ParallelConfig, *, rank: int) -> BuiltGroups:
    """Build all groups as that rank of a world of `config.world_size`, read its seat, and undo everything."""
    require_innermost()
    tables: dict[str, list[list[int]]] = {}
    context = importlib.import_module(CONTEXT_MODULE)
    with _undone(), _pretended_world(config.world_size, partial(_RecordedGroup, rank, tables)):
        context.get_parallel()._overrides = {}
        module = importlib.import_module(_STATE_MODULE)
        if package.generation is Generation.PUBLISHED:
            sglang_published.publish(config, rank=rank)
            module.initialize_model_parallel(backend="gloo")
        else:
            module.initialize_model_parallel(backend="gloo", **_sizes(config))
        parallel = context.get_parallel()
        seat = (int(parallel.attn_dcp_rank), int(parallel.attn_dcp_size))
    alone = [[each] for each in range(config.world_size)]
    return BuiltGroups(tp=tables["tp"], dcp=tables.get("dcp", alone), seat=seat)


def _sizes(config: ParallelConfig) -> dict[str, int]:
    return {
        "tensor_model_parallel_size": config.tp_size,
        "pipeline_model_parallel_size": config.pp_size,
        "expert_model_parallel_size": config.ep_size,
        "attention_data_parallel_size": config.attn_dp_size,
        "attention_context_model_parallel_size": config.attn_cp_size,
        "moe_data_model_parallel_size": config.moe_dp_size,
        "decode_context_parallel_size": config.dcp_size,
    }


@contextmanager
def _undone() -> Iterator[None]:
    """Put back what the package keeps about its process, and the groups in its module."""
    module = importlib.import_module(_STATE_MODULE)
    before = ProcessState.read()
    groups = {name: value for name, value in vars(module).items() if name.startswith("_") and name.isupper()}
    try:
        yield
    finally:
        vars(module).update(groups)
        before.restore()


@contextmanager
def _pretended_world(world_size: int, group: Any) -> Iterator[None]:
    module = importlib.import_module(_STATE_MODULE)
    distributed = importlib.import_module("torch.distributed")
    world = SimpleNamespace(local_rank=0)
    with ExitStack() as stack:
        for owner, name, value in (
            (distributed, "is_initialized", lambda: True),
            (distributed, "get_world_size", lambda *_: world_size),
            (module, "get_world_group", lambda: world),
            (module, "GroupCoordinator", group),
            (module, "is_cuda", lambda: True),
        ):
            stack.enter_context(patch.object(owner, name, value))
        yield
