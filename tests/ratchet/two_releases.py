"""A tiny engine twice: as it read its DCP size before two changes, and after them.

What upstream's #33925 and #34133 did to a dozen files is done here to five of ours: reads of the seed become reads of
live topology, and the copies on a runner become reads of its per-worker state.
"""

from __future__ import annotations

BEFORE = {
    "engine/runner.py": """
class ModelRunner:
    def __init__(self, server_args, ps):
        self.server_args = server_args
        self.ps = ps
        self.dcp_size = server_args.dcp_size
        self.dcp_rank = ps.tp_rank % self.dcp_size
        self.join_groups()

    def wants_replicated_projection(self):
        return self.server_args.dcp_size > 1 and get_parallel().dcp_replicate_q_proj
""",
    "engine/checker.py": """
class PoolChecker:
    server_args: ServerArgs

    def slack(self, pages):
        if getattr(self.server_args, "dcp_size", 1) > 1:
            return pages
        return 0
""",
    "engine/batch.py": """
def owner_mask(model_runner, positions):
    if getattr(model_runner, "dcp_size", 1) > 1:
        return positions % model_runner.dcp_size == model_runner.dcp_rank
    return None
""",
    "engine/allocation.py": """
def page_size(batch):
    return batch.page_size if get_server_args().dcp_size > 1 else batch.tree_page_size
""",
    "engine/launch.py": """
def start(server_args):
    size = server_args.dcp_size
    return [ParallelState(dcp_size=size) for _ in range(server_args.tp_size)]
""",
}
AFTER = BEFORE | {
    "engine/runner.py": """
class ModelRunner:
    def __init__(self, server_args, ps):
        self.server_args = server_args
        self.ps = ps
        self.join_groups()

    def wants_replicated_projection(self):
        return get_parallel().dcp_enabled and get_parallel().dcp_replicate_q_proj
""",
    "engine/checker.py": """
class PoolChecker:
    def slack(self, pages):
        return pages if get_parallel().dcp_enabled else 0
""",
    "engine/batch.py": """
def owner_mask(model_runner, positions):
    if model_runner.ps.attn_dcp_size > 1:
        return positions % model_runner.ps.attn_dcp_size == model_runner.ps.attn_dcp_rank
    return None
""",
    "engine/allocation.py": """
def page_size(batch):
    return batch.page_size if get_parallel().dcp_enabled else batch.tree_page_size
""",
}
RULES = """
exclude: [tests]
server_args: {names: [server_args], types: [ServerArgs], getters: [get_server_args]}
live: {getters: [get_parallel]}
state: {names: [ps], types: [ParallelState]}
workers: {names: [model_runner], classes: ["*Runner"]}
init_calls: [join_groups]
axes:
  dcp:
    fields: [dcp_size]
    live: [dcp_size, dcp_rank, dcp_enabled, attn_dcp_size, attn_dcp_rank]
    instead: get_parallel().attn_dcp_size
    per_worker: ps.attn_dcp_size
  tp: {fields: [tp_size], live: [tp_size], instead: get_parallel().tp_size}
"""
