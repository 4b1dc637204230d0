"""Where a worker's ParallelState is built: in the scheduler, and in the benchmark that runs without one.

The arguments given to the class are looked at, not an instance: their names changed with a release, and an old
name would end the drive in a TypeError instead of being seen. Releases from 0.5.21 on have no such class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from harness.reads.bare import LastCall, Recorder, StandIn, bare
from harness.reads.registry import Kind, Role, consumer
from harness.reads.stage import Stage
from harness.topology import InjectedWorker, ParallelConfig, ParallelState, inject
from harness.topology.sources import compare_states

_SCHEDULER = "sglang.srt.managers.scheduler:Scheduler.__init__"
_ONE_BATCH = "sglang.benchmark.one_batch:load_model"
_STATE = "sglang.srt.distributed.parallel_state_wrapper:ParallelState"

# Only a target's state is constructed; a draft's is a copy of it.
_TARGET = (Role.TARGET,)

# The topologies in which both sites must agree for every rank, with each other and with what harness derives.
COMPARED = (
    ParallelConfig(tp_size=8, dcp_size=4),
    ParallelConfig(tp_size=4, dcp_size=2),
    ParallelConfig(tp_size=8, dcp_size=2),
)

# What a site is given, or the class wants, under each release's name.
_SIZE_NAMES = ("attn_dcp_size", "dcp_size")

Given = Mapping[str, Any]


@consumer("scheduler.construction", kind=Kind.SCALE, drives=_SCHEDULER, roles=_TARGET)
def scheduler_size(worker: InjectedWorker, role: Role, stage: Stage) -> int:
    """The DCP size of the state that the scheduler builds."""
    return _size(_Sites(stage).scheduler(worker))


@consumer("scheduler.construction_rank", kind=Kind.RANK, drives=_SCHEDULER, roles=_TARGET)
def scheduler_rank(worker: InjectedWorker, role: Role, stage: Stage) -> int | None:
    """The DCP rank in it; None where the release keeps no rank."""
    return _Sites(stage).scheduler(worker).get("attn_dcp_rank")


@consumer("one_batch.construction", kind=Kind.SCALE, drives=_ONE_BATCH, roles=_TARGET)
def one_batch_size(worker: InjectedWorker, role: Role, stage: Stage) -> int:
    """The DCP size of the state that the benchmark builds."""
    return _size(_Sites(stage).one_batch(worker))


@consumer("one_batch.construction_rank", kind=Kind.RANK, drives=_ONE_BATCH, roles=_TARGET)
def one_batch_rank(worker: InjectedWorker, role: Role, stage: Stage) -> int | None:
    """The DCP rank in it; None where the release keeps no rank."""
    return _Sites(stage).one_batch(worker).get("attn_dcp_rank")


@consumer("construction_sites", kind=Kind.FACT, drives=_SCHEDULER, roles=_TARGET)
def construction_sites(worker: InjectedWorker, role: Role, stage: Stage) -> str:
    """Whether both sites build the same state for every rank of every compared topology, and the right one."""
    sites = _Sites(stage)
    unset: dict[str, set[str]] = {"scheduler": set(), "one_batch": set()}
    for rank in _every_rank():
        given = {"scheduler": sites.scheduler(rank), "one_batch": sites.one_batch(rank)}
        for site, values in given.items():
            unset[site] |= {name for name, value in values.items() if value is None}
        differ = differences({site: _state(values) for site, values in given.items()}, rank.ps)
        if differ:
            sizes = f"tp{rank.ps.tp_size}/dcp{rank.ps.attn_dcp_size}"
            return f"rank {rank.rank} of {sizes}: {'; '.join(differ)}"
    told = (f"{site} sets no {', '.join(sorted(names))}" for site, names in unset.items() if names)
    return "; ".join(["equal", *told])


@consumer("parallel_state.fields", kind=Kind.FACT, drives=_STATE, roles=_TARGET)
def state_fields(worker: InjectedWorker, role: Role, stage: Stage) -> str:
    """What the class keeps of DCP, and what it says of an engine of one rank."""
    from sglang.srt.distributed import parallel_state_wrapper

    real = parallel_state_wrapper.ParallelState
    built = Recorder()
    stage.patch(parallel_state_wrapper, "ParallelState", built)
    real.trivial()
    (trivial,) = built.calls
    kept = [field.name for field in fields(real) if "dcp" in field.name]
    alone = [f"{name}={value}" for name, value in trivial.named.items() if "dcp" in name]
    return f"{', '.join(kept)}; trivial {', '.join(alone)}"


class _Sites:
    """What each site gives the class, for a worker that is injected when it is asked."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._end = LastCall()

    def scheduler(self, worker: InjectedWorker) -> Given:
        """As the launcher starts a scheduler process for this rank."""
        from sglang.srt.managers import scheduler

        self._stage.require(scheduler, "ParallelState")
        from sglang.srt.entrypoints.engine import _compute_parallelism_ranks

        self._stage.patch(scheduler, "ParallelState", self._end)
        self._stage.patch(scheduler.Scheduler, "init_soft_watchdog", StandIn())
        args, tp_rank = _server_args(worker), worker.ps.tp_rank
        attn_cp_rank, moe_dp_rank, moe_ep_rank = _compute_parallelism_ranks(args, tp_rank)
        made = bare(scheduler.Scheduler)
        return self._end.of(
            made.__init__,
            server_args=args,
            port_args=StandIn(),
            gpu_id=0,
            tp_rank=tp_rank,
            moe_ep_rank=moe_ep_rank,
            pp_rank=0,
            attn_cp_rank=attn_cp_rank,
            moe_dp_rank=moe_dp_rank,
            dp_rank=None,
        ).named

    def one_batch(self, worker: InjectedWorker) -> Given:
        """As the benchmark starts one rank."""
        from sglang.benchmark import one_batch

        self._stage.require(one_batch, "ParallelState")
        self._stage.patch(one_batch, "ParallelState", self._end)
        self._stage.patch(one_batch, "ModelConfig", StandIn())
        self._stage.patch(one_batch, "suppress_other_loggers", StandIn())
        return self._end.of(
            one_batch.load_model,
            _server_args(worker),
            StandIn(),
            gpu_id=0,
            tp_rank=worker.ps.tp_rank,
        ).named


def _server_args(worker: Any) -> Any:
    return worker.server_args


def _size(given: Given) -> int:
    (size,) = (given[name] for name in _SIZE_NAMES if name in given)
    return int(size)


def differences(built: Mapping[str, ParallelState], derived: ParallelState) -> list[str]:
    """Every field in which a site differs from what harness derives of the same arguments, with both values."""
    return [
        f"{differ.axis}: {', '.join(f'{name} {value}' for name, value in differ.values.items())}"
        for site, state in built.items()
        for differ in compare_states(replace(derived, gpu_id=state.gpu_id), state, names=("expected", site))
    ]


def _every_rank() -> Iterator[InjectedWorker]:
    for config in COMPARED:
        for rank in range(config.world_size):
            with inject(config, rank=rank, target="sglang") as worker:
                yield worker


def _state(given: Given) -> ParallelState:
    """What a site gives, as harness's state. None is 0 there; a rank that a release does not keep follows."""
    values = {name: 0 if value is None else value for name, value in given.items()}
    size = values.pop("dcp_size", None) or values["attn_dcp_size"]
    values["attn_dcp_size"] = size
    values.setdefault("attn_dcp_rank", values["tp_rank"] % size)
    return ParallelState(**values)
