"""The TP worker: how long a request may be, by what the KV pools of its DCP group hold together."""

from __future__ import annotations

from typing import Any

from harness.errors import EngineError
from harness.reads.bare import StandIn, bare, times
from harness.reads.consumers.kv_configurator import bare_configurator
from harness.reads.consumers.model_runner import bare_runner
from harness.reads.registry import Kind, Role, consumer
from harness.reads.stage import Stage
from harness.topology import InjectedWorker

_CLASS = "sglang.srt.managers.tp_worker:TpModelWorker"

# Rows of one rank's pool, a prime; and a model whose context is longer than any aggregate of them.
_ROWS = 1009
_CONTEXT = 1_000_000

# Where `get_worker_info` answers with the longest request.
_MAX_REQ_LEN = 4


@consumer("tp_worker.kv_pool", kind=Kind.SCALE, drives=f"{_CLASS}.alloc_memory_pool")
def kv_pool(worker: InjectedWorker, role: Role, stage: Stage) -> int:
    """How many ranks' rows the check after allocation takes for the pool. The function returns nothing, so the
    model's context length is one that remembers what it was compared with."""
    context = _Context(_CONTEXT)
    _bare_worker(stage, context_len=context).alloc_memory_pool()
    return times(context.compared + 1, _ROWS)


@consumer("tp_worker.max_req_len", kind=Kind.SCALE, drives=f"{_CLASS}.get_worker_info")
def max_req_len(worker: InjectedWorker, role: Role, stage: Stage) -> int:
    """How many ranks' rows the longest request may fill."""
    answer = _bare_worker(stage, context_len=_CONTEXT).get_worker_info()
    return times(answer[_MAX_REQ_LEN] + 1, _ROWS)


class _Context(int):
    """A context length that keeps, also one less of it, the last number that it was compared with."""

    _told: list[int]

    def __new__(cls, value: int, told: list[int] | None = None) -> _Context:
        made = super().__new__(cls, value)
        made._told = [] if told is None else told
        return made

    @property
    def compared(self) -> int:
        """Raises EngineError where it was compared with nothing."""
        if not self._told:
            raise EngineError("the context length was compared with no pool")
        return self._told[-1]

    def __sub__(self, other: int) -> _Context:
        return _Context(int(self) - other, self._told)

    def __gt__(self, other: int) -> bool:
        self._told.append(other)
        return int(self) > other


def _bare_worker(stage: Stage, *, context_len: int) -> Any:
    """A worker over one runner with a plain pool."""
    from sglang.srt.managers.tp_worker import TpModelWorker

    pool = StandIn()
    pool.schedulable_token_capacity = lambda rows: rows
    runner = bare_runner(
        stage,
        alloc_memory_pool=StandIn(),
        max_total_num_tokens=_ROWS,
        max_running_requests=1,
        is_hybrid_swa=False,
        kv_cache_configurator=bare_configurator(stage),
        req_to_token_pool=pool,
        token_to_kv_pool=StandIn(),
        token_to_kv_pool_allocator=None,
        forward_stream=None,
    )
    return bare(
        TpModelWorker,
        ps=stage.ps,
        server_args=stage.server_args,
        model_config=StandIn(context_len=context_len),
        _model_runner=runner,
        model_runner_list=[],
        dllm_algorithm=None,
        random_seed=0,
        device="cpu",
    )
