"""Our group tables are those that SGLang's own `initialize_model_parallel` builds, axis by axis.

Releases 0.5.17 and 0.5.18 take the sizes as arguments; what would make a process group is replaced by a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sglang_process import ask

from harness.environments import Environment
from harness.topology import ParallelConfig, group_table

# Ours by theirs.
AXES = {
    "_TP": "tp",
    "_PP": "pp",
    "_ATTN_TP": "attn_tp",
    "_ATTN_CP": "attn_cp",
    "_DCP": "attn_dcp",
    "_MOE_EP": "moe_ep",
    "_MOE_DP": "moe_dp",
    "_MOE_TP": "moe_tp",
}
SNIPPET = """
    from unittest import mock
    import torch
    from sglang.srt.distributed import parallel_state

    class Group:
        local_rank = world_size = rank_in_group = 0
        pynccl_comm = device_group = None

        def __init__(self, ranks):
            self.ranks = ranks

    def made_of(sizes):
        for name in {axes}:
            setattr(parallel_state, name, None)
        replaced = {{
            "init_model_parallel_group": lambda ranks, *args, **kwargs: Group(ranks),
            "get_world_group": lambda: Group([]),
            "is_cuda": lambda: True,
            "get_tensor_model_parallel_rank": lambda: 1,
        }}
        world = {{"is_initialized": lambda: True, "get_world_size": lambda *args: sizes[0] * sizes[2]}}
        with mock.patch.multiple(parallel_state, **replaced), mock.patch.multiple(torch.distributed, **world):
            parallel_state.initialize_model_parallel(*sizes, backend="gloo")
        made = {{name: getattr(parallel_state, name) for name in {axes}}}
        return {{name: group and group.ranks for name, group in made.items()}}

    answer = [made_of(sizes) for sizes in {topologies}]
"""


def topologies() -> Iterator[ParallelConfig]:
    """Every way to cut TP groups of these sizes."""
    for tp in (1, 2, 4, 6, 8, 12):
        fits = [size for size in range(1, tp + 1) if tp % size == 0]
        for pp in (1, 2):
            for dp, cp, dcp in ((a, b, c) for a in fits for b in fits for c in fits if tp % (a * b * c) == 0):
                for ep, moe_dp in ((a, b) for a in fits for b in fits if tp % (a * b) == 0):
                    yield ParallelConfig(
                        tp_size=tp,
                        pp_size=pp,
                        dp_size=dp,
                        attn_cp_size=cp,
                        dcp_size=dcp,
                        ep_size=ep,
                        moe_dp_size=moe_dp,
                        enable_dp_attention=True,
                    )


@pytest.mark.parametrize("version", ["0.5.17", "0.5.18"])
def test_group_tables_are_those_of_the_package(
    version: str, sglang_environment: Callable[[str], Environment]
) -> None:
    configs = list(topologies())
    asked = [
        (c.tp_size, c.ep_size, c.pp_size, c.dp_size, c.attn_cp_size, c.moe_dp_size, c.dcp_size)
        for c in configs
    ]
    snippet = SNIPPET.format(axes=list(AXES), topologies=asked)
    for config, theirs in zip(configs, ask(sglang_environment(version), snippet), strict=True):
        for name, axis in AXES.items():
            assert theirs[name] == expected(config, axis), (config, axis)


def expected(config: ParallelConfig, axis: str) -> Any:
    """Our table; but for the two cases in which the package builds no group of its own."""
    if axis == "attn_dcp" and config.dcp_size == 1:
        return None
    if axis == "moe_dp" and config.attn_cp_size > config.moe_dp_size:
        return group_table(config, "attn_cp")
    return group_table(config, axis)
