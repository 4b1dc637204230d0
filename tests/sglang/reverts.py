"""Each read that the changes #33925 and #34133 moved, moved back alone, and the rows that must then read it.

Small edits of ours to the released 0.5.18, in words of our own: what an edit puts back reads the source of before.
A line that upstream changed together with another is an edit of its own where rows tell the two apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

VERSION = "0.5.18"

# The launch arguments, where the edited function has none at hand.
_SEED = '__import__("sglang.srt.runtime_context", fromlist=["_"]).get_server_args().dcp_size'


@dataclass(frozen=True, slots=True)
class Revert:
    """`old` stands in `file` of the package exactly once, `flips` are the sources that rows then read.

    One that is `alone` changes rows of other reverts too, when it is made together with them.
    """

    name: str
    change: int
    file: str
    old: str
    new: str
    flips: Mapping[str, str]
    alone: bool = False


def _both(consumer: str, source: str) -> dict[str, str]:
    return {f"{consumer}[target]": source, f"{consumer}[draft]": source}


def _target(consumer: str, source: str) -> dict[str, str]:
    return {f"{consumer}[target]": source}


_MODEL_RUNNER = "srt/model_executor/model_runner.py"
_CONFIGURATOR = "srt/mem_cache/kv_cache_configurator.py"
_SCHEDULER = "srt/managers/scheduler.py"
_CHECKER = "srt/managers/scheduler_components/invariant_checker.py"
_BASE_RUNNER = "srt/model_executor/runner/base_runner.py"
_BATCH = "srt/model_executor/forward_batch_info.py"
_WORKER = "srt/managers/tp_worker.py"
_STATE = "srt/distributed/parallel_state_wrapper.py"

REVERTS = (
    Revert(
        "pd connection",
        33925,
        "srt/disaggregation/common/conn.py",
        "self.dcp_size = parallel.attn_dcp_size",
        "self.dcp_size = server_args.dcp_size",
        _target("pd_connection.size", "seed"),
    ),
    Revert(
        "pd connection rank",
        33925,
        "srt/disaggregation/common/conn.py",
        "self.dcp_rank = parallel.attn_dcp_rank",
        "self.dcp_rank = parallel.attn_dcp_rank if server_args.dcp_size > 1 else 0",
        _target("pd_connection.rank", "live gated by seed"),
    ),
    Revert(
        "trtllm_mla gate",
        33925,
        "srt/layers/attention/attention_registry.py",
        "        get_parallel().dcp_enabled\n",
        "        runner.server_args.dcp_size > 1\n",
        _both("attention_registry.trtllm_mla_gate", "seed"),
    ),
    Revert(
        "dsa seed remap",
        33925,
        "srt/layers/attention/dsa/utils.py",
        "and not get_parallel().dcp_enabled",
        f"and {_SEED} == 1",
        _both("dsa.seed_remap", "seed"),
    ),
    Revert(
        "pool statistics",
        33925,
        _SCHEDULER,
        "* get_parallel().attn_dcp_size,\n            get_last_batch",
        "* self.server_args.dcp_size,\n            get_last_batch",
        _target("scheduler.pool_stats", "seed"),
    ),
    Revert(
        "arguments of the invariant checker",
        33925,
        _SCHEDULER,
        "self.invariant_checker = SchedulerInvariantChecker(\n",
        "self.invariant_checker = SchedulerInvariantChecker(\n            server_args=self.server_args,\n",
        _target("scheduler.invariant_checker_arguments", "server_args"),
    ),
    Revert(
        "max_new_tokens",
        33925,
        _SCHEDULER,
        "self.max_total_num_tokens * get_parallel().attn_dcp_size\n                - paged",
        "self.max_total_num_tokens * self.server_args.dcp_size\n                - paged",
        _target("scheduler.max_new_tokens", "seed"),
    ),
    Revert(
        "field of the invariant checker",
        33925,
        _CHECKER,
        "    max_total_num_tokens: int\n",
        "    max_total_num_tokens: int\n    server_args: object\n",
        _target("invariant_checker.fields", "server_args"),
    ),
    Revert(
        "rounding",
        33925,
        _CHECKER,
        "        if get_parallel().dcp_enabled and allocator",
        '        if getattr(self.server_args, "dcp_size", 1) > 1 and allocator',
        _target("invariant_checker.rounding", "seed"),
    ),
    Revert(
        "slack",
        33925,
        _CHECKER,
        "if leak and get_parallel().dcp_enabled and",
        'if leak and getattr(self.server_args, "dcp_size", 1) > 1 and',
        _target("invariant_checker.slack", "seed"),
    ),
    Revert(
        "page size of an allocation",
        33925,
        "srt/mem_cache/allocation.py",
        "(_is_hip or _is_cuda) and get_parallel().dcp_enabled",
        f"(_is_hip or _is_cuda) and {_SEED} > 1",
        _target("allocation.page_size", "seed"),
    ),
    Revert(
        "location scale",
        33925,
        _CONFIGURATOR,
        "        dcp_size = get_parallel().attn_dcp_size\n        return dcp_size if",
        "        dcp_size = self.server_args.dcp_size\n        return dcp_size if",
        {"kv_configurator.loc_scale[draft]": "seed"},
    ),
    Revert(
        "choice of allocator",
        33925,
        _CONFIGURATOR,
        "page_size == 1 and not get_parallel().dcp_enabled",
        "page_size == 1 and self.server_args.dcp_size == 1",
        _target("kv_configurator.allocator_choice", "seed"),
    ),
    Revert(
        "capacity",
        33925,
        _CONFIGURATOR,
        "sizes.max_total_num_tokens * get_parallel().attn_dcp_size",
        "sizes.max_total_num_tokens * self.server_args.dcp_size",
        _target("kv_configurator.capacity", "seed"),
    ),
    Revert(
        "page widening",
        33925,
        _CONFIGURATOR,
        "                            * get_parallel().attn_dcp_size,\n",
        "                            * self.server_args.dcp_size,\n",
        _target("kv_configurator.page_widening", "seed"),
    ),
    Revert(
        "copy of the launch arguments",
        33925,
        _MODEL_RUNNER,
        "        self.ps = ps\n",
        "        self.ps = ps\n        self.dcp_size = server_args.dcp_size\n"
        "        self.dcp_rank = ps.tp_rank % self.dcp_size\n",
        {**_both("model_runner.copy_size", "seed"), **_both("model_runner.copy_rank", "seed")},
        alone=True,
    ),
    Revert(
        "q projection gate",
        33925,
        _MODEL_RUNNER,
        "if get_parallel().dcp_enabled and get_parallel().dcp_replicate_q_proj",
        "if self.server_args.dcp_size > 1 and get_parallel().dcp_replicate_q_proj",
        _both("model_runner.q_proj_gate", "seed"),
    ),
    Revert(
        "draft-flash cell",
        33925,
        "srt/model_executor/pool_configurator.py",
        "                    * get_parallel().attn_dcp_size,\n",
        "                    * kvc.server_args.dcp_size,\n",
        _target("pool_configurator.dflash_cell", "seed"),
    ),
    Revert(
        "all-to-all gate",
        33925,
        _BASE_RUNNER,
        "not get_parallel().dcp_enabled\n",
        "self.model_runner.server_args.dcp_size <= 1\n",
        _both("base_runner.fi_a2a_gate", "seed"),
    ),
    Revert(
        "all-to-all backend",
        33925,
        _BASE_RUNNER,
        "or get_parallel().dcp_comm_backend",
        "or self.model_runner.server_args.dcp_comm_backend",
        _both("base_runner.fi_a2a_backend", "seed"),
    ),
    Revert(
        "construction in the benchmark",
        34133,
        "benchmark/one_batch.py",
        "        attn_dcp_rank=tp_rank % server_args.dcp_size,\n        attn_dcp_size=",
        "        dcp_size=",
        _target("one_batch.construction_rank", "none"),
    ),
    Revert(
        "construction in the scheduler",
        34133,
        _SCHEDULER,
        "            attn_dcp_rank=tp_rank % server_args.dcp_size,\n            attn_dcp_size=",
        "            dcp_size=",
        _target("scheduler.construction_rank", "none"),
    ),
    Revert(
        "name at the bootstrap",
        34133,
        "srt/distributed/bootstrap.py",
        "ps.attn_dcp_size",
        "ps.dcp_size",
        _target("bootstrap.ps_field", "dcp_size"),
    ),
    Revert(
        "fields of the state",
        34133,
        _STATE,
        "    attn_dcp_rank: int\n    attn_dcp_size: int\n",
        "    dcp_size: int\n",
        _target("parallel_state.fields", "dcp_size; trivial attn_dcp_rank=0, attn_dcp_size=1"),
    ),
    Revert(
        "the trivial state",
        34133,
        _STATE,
        "            attn_dcp_rank=0,\n            attn_dcp_size=1,\n",
        "            dcp_size=1,\n",
        _target("parallel_state.fields", "attn_dcp_rank, attn_dcp_size; trivial dcp_size=1"),
        alone=True,
    ),
    Revert(
        "kv pool",
        34133,
        _WORKER,
        "self.ps.attn_dcp_size\n            - 1,\n        )\n        assert",
        "self.model_runner.dcp_size\n            - 1,\n        )\n        assert",
        _both("tp_worker.kv_pool", "copy"),
    ),
    Revert(
        "longest request",
        34133,
        _WORKER,
        "self.ps.attn_dcp_size\n            - 1,\n        )\n        return",
        "self.model_runner.dcp_size\n            - 1,\n        )\n        return",
        _both("tp_worker.max_req_len", "copy"),
    ),
    Revert(
        "gate of the mask",
        34133,
        _BATCH,
        "            model_runner.ps.attn_dcp_size > 1\n",
        '            getattr(model_runner, "dcp_size", 1) > 1\n',
        {
            **_both("forward_batch.kv_mask_gate", "copy"),
            **_both("forward_batch.kv_mask_size", "ps gated by copy"),
            **_both("forward_batch.kv_mask_rank", "ps gated by copy"),
        },
    ),
    Revert(
        "size of the mask",
        34133,
        _BATCH,
        "ret.positions % model_runner.ps.attn_dcp_size",
        "ret.positions % model_runner.dcp_size",
        _both("forward_batch.kv_mask_size", "copy gated by ps"),
        alone=True,
    ),
    Revert(
        "rank of the mask",
        34133,
        _BATCH,
        "== model_runner.ps.attn_dcp_rank",
        "== model_runner.dcp_rank",
        _both("forward_batch.kv_mask_rank", "copy gated by ps"),
        alone=True,
    ),
    Revert(
        "copy of live topology",
        34133,
        _MODEL_RUNNER,
        "        self.init_torch_distributed()\n",
        "        self.init_torch_distributed()\n        self.dcp_size = get_parallel().attn_dcp_size\n"
        "        self.dcp_rank = get_parallel().attn_dcp_rank\n",
        {**_both("model_runner.copy_size", "live"), **_both("model_runner.copy_rank", "live")},
        alone=True,
    ),
    Revert(
        "metadata of an extend",
        34133,
        "srt/model_executor/runner/eager_runner.py",
        "if model_runner.ps.attn_dcp_size > 1 and",
        "if model_runner.dcp_size > 1 and",
        _both("eager_runner.extend_metadata", "copy"),
    ),
)


_CONN = "srt/disaggregation/common/conn.py"
_STRIDED = "attn_dcp_rank=tp_rank // (server_args.tp_size // server_args.dcp_size)"

# Reads that are wrong and look right: the last rank in the place of this one, a rank counted in strides at both
# places that build a state, and live topology that is read only where the launch arguments say so.
LOOK_ALIKES = (
    Revert(
        "a size that the seed guards",
        33925,
        _CONN,
        "self.dcp_size = parallel.attn_dcp_size",
        "self.dcp_size = parallel.attn_dcp_size if server_args.dcp_size > 1 else 1",
        _target("pd_connection.size", "live gated by seed"),
    ),
    Revert(
        "the last rank",
        33925,
        _CONN,
        "self.dcp_rank = parallel.attn_dcp_rank",
        "self.dcp_rank = parallel.attn_dcp_size - 1",
        _target("pd_connection.rank", "unclear"),
    ),
    Revert(
        "the last rank of the state",
        34133,
        _BATCH,
        "== model_runner.ps.attn_dcp_rank",
        "== model_runner.ps.attn_dcp_size - 1",
        _both("forward_batch.kv_mask_rank", "unclear"),
    ),
    Revert(
        "strides in the scheduler",
        34133,
        _SCHEDULER,
        "attn_dcp_rank=tp_rank % server_args.dcp_size",
        _STRIDED,
        {
            **_target("scheduler.construction_rank", "unclear"),
            **_target(
                "construction_sites",
                "rank 1 of tp8/dcp4: attn_dcp_rank: expected 1, scheduler 0; attn_dcp_rank: expected 1, one_batch 0",
            ),
        },
    ),
    Revert(
        "strides in the benchmark",
        34133,
        "benchmark/one_batch.py",
        "attn_dcp_rank=tp_rank % server_args.dcp_size",
        _STRIDED,
        _target("one_batch.construction_rank", "unclear"),
    ),
)
