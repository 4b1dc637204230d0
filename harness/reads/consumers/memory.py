"""Memory: the page size of an allocation, and what a draft-flash model's cell costs."""

from __future__ import annotations

from types import SimpleNamespace

from harness.reads.bare import StandIn
from harness.reads.registry import Kind, Role, consumer
from harness.reads.stage import Stage
from harness.topology import InjectedWorker

# Page sizes that no topology number equals.
_TREE_PAGE = 1
_ALLOCATOR_PAGE = 64


@consumer(
    "allocation.page_size",
    kind=Kind.GATE,
    roles=(Role.TARGET,),
    drives="sglang.srt.mem_cache.allocation:_alloc_page_size",
)
def page_size(worker: InjectedWorker, role: Role, stage: Stage) -> bool:
    """Under DCP a batch is allocated in the allocator's widened pages, else in the prefix tree's."""
    from sglang.srt.mem_cache import allocation

    stage.patch(allocation, "_is_cuda", True)
    allocator = SimpleNamespace(page_size=_ALLOCATOR_PAGE)
    tree = SimpleNamespace(page_size=_TREE_PAGE, token_to_kv_pool_allocator=allocator)
    page = allocation._alloc_page_size(SimpleNamespace(tree_cache=tree))
    return {_TREE_PAGE: False, _ALLOCATOR_PAGE: True}[page]


@consumer(
    "pool_configurator.dflash_cell",
    kind=Kind.SCALE,
    roles=(Role.TARGET,),  # a draft worker's own configurator adds nothing
    drives="sglang.srt.model_executor.pool_configurator:DefaultPoolConfigurator.__init__",
)
def dflash_cell(worker: InjectedWorker, role: Role, stage: Stage) -> int:
    """The target's cell pays for a draft of one layer, which every rank holds whole: how many layers it counts."""
    from sglang.srt.model_executor import pool_configurator
    from sglang.srt.speculative import dflash_utils

    scale = StandIn(name="scale_kv_cell_size_per_token_for_dflash", return_value=1)
    stage.patch(dflash_utils, "scale_kv_cell_size_per_token_for_dflash", scale)
    stage.patch(pool_configurator, "mambaish_config", lambda _model_config: None)
    stage.patch(pool_configurator.DefaultPoolConfigurator, "_compute_cell_size", lambda *_: 1)
    if hasattr(pool_configurator, "compute_page_shard_scratch_bytes"):
        stage.patch(pool_configurator, "compute_page_shard_scratch_bytes", lambda *_, **__: 0)
    pool_configurator.DefaultPoolConfigurator(_configurator_of_dflash(stage))
    return int(scale.call_args.kwargs["draft_num_layers"])


def _configurator_of_dflash(stage: Stage) -> StandIn:
    """The KV configurator that the pool configurator asks; whatever else it asks for is not of this probe."""
    configurator = StandIn(name="kvc", ps=stage.ps, server_args=stage.server_args, is_draft_worker=False)
    configurator.spec_algorithm.is_eagle.return_value = False
    configurator.spec_algorithm.is_standalone.return_value = False
    configurator.spec_algorithm.is_dflash_family.return_value = True
    configurator.spec_aux_config.dflash_draft_num_layers = 1
    configurator.spec_aux_config.dflash_draft_cell_size_per_token = None
    configurator.dflash_draft_cell_size_per_token = None
    configurator.layer_info.num_effective_layers = 1
    configurator.fused_entry_bytes.return_value = None
    return configurator
