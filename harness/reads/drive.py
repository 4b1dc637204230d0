"""Drive one consumer of the installed package under every assignment, and say which source it reads.

Runs inside an SGLang environment. What the package raises is not caught: it is an error of the row, with its
traceback, never a finding.
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from harness.reads.registry import Answer, Consumer, Role
from harness.reads.sources import (
    GATED_BY,
    TP_SIZE,
    Assignment,
    Observed,
    Place,
    Source,
    assignments,
    name_source,
)
from harness.reads.stage import ConsumerAbsentError, Stage
from harness.topology import ParallelConfig, ParallelState, inject
from harness.topology.targets.sglang import Generation, SglangWorker, detect


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What one consumer reads in one role. `absent` says what the package lacks, where it lacks the consumer."""

    consumer: Consumer
    role: Role
    source: str
    observed: tuple[Observed, ...] = ()
    where: str = ""
    absent: str = ""
    has_ps: bool = True

    @property
    def numbers(self) -> list[dict[str, Answer]]:
        """One drive each: its rank, what every source said, and what was used. A release that has no ps says
        nothing of it, unless what reads one has come back."""
        told: list[dict[str, Answer]] = []
        for each in self.observed:
            said = each.assignment.said(self.consumer.kind)
            if not self.has_ps and Source.PS not in self.source.split(GATED_BY):
                del said[Source.PS.value]
            told.append({"tp_rank": each.assignment.tp_rank, **said, "used": each.answer})
        return told


def observe(consumer: Consumer, role: Role) -> Observation:
    """Drive it. Raises whatever the package raises, and InjectionError where there is no package at all."""
    package = detect()
    try:
        function = find_driven(consumer.drives)
        observed = tuple(Observed(each, _drive(consumer, role, each)) for each in assignments(consumer.kind))
    except ConsumerAbsentError as gone:
        return Observation(consumer=consumer, role=role, source="absent", absent=str(gone))
    return Observation(
        consumer=consumer,
        role=role,
        source=name_source(consumer.kind, observed),
        observed=observed,
        where=_where(function),
        has_ps=package.generation is Generation.LIVE,
    )


def _drive(consumer: Consumer, role: Role, assignment: Assignment) -> Answer:
    seed = ParallelConfig(tp_size=TP_SIZE, dcp_size=assignment.seed.size)
    backends = {"seed": assignment.seed.backend, "live": assignment.live.backend}
    with inject(
        seed,
        rank=assignment.tp_rank,
        seed=seed,
        ps=_state(assignment.ps, tp_rank=assignment.tp_rank),
        live=_state(assignment.live, tp_rank=assignment.tp_rank),
        target="sglang",
    ) as worker:
        sentinel = (assignment.copy.size, assignment.copy.rank)
        with Stage(cast(SglangWorker, worker), role, sentinel=sentinel, backends=backends) as stage:
            return consumer.drive(worker, role, stage)


def _state(place: Place, *, tp_rank: int) -> ParallelState:
    config = ParallelConfig(tp_size=TP_SIZE, dcp_size=place.size)
    return replace(ParallelState.from_config(config, tp_rank=tp_rank), gpu_id=0)


def find_driven(paths: tuple[str, ...]) -> Any:
    """The function that is driven. Raises ConsumerAbsentError naming what is not there of every path."""
    missing = []
    for path in paths:
        module_name, _, qualified = path.partition(":")
        try:
            found: Any = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if not f"{module_name}.".startswith(f"{error.name}."):
                raise  # a dependency is missing, not the consumer
            missing.append(f"there is no module {error.name}")
            continue
        for part in qualified.split("."):
            if not hasattr(found, part):
                missing.append(f"{_name(found)} has no {part}")
                break
            found = getattr(found, part)
        else:
            return found
    raise ConsumerAbsentError("; ".join(missing))


def _where(function: Any) -> str:
    """Where the driven function stands, as `srt/mem_cache/allocation.py:272`, relative to the package."""
    function = inspect.unwrap(getattr(function, "fget", None) or function)
    file = Path(inspect.getsourcefile(function) or "")
    package = Path(inspect.getsourcefile(importlib.import_module("sglang")) or "").parent
    return f"{file.relative_to(package)}:{inspect.getsourcelines(function)[1]}"


def _name(owner: Any) -> str:
    return owner.__name__ if isinstance(owner, ModuleType) else getattr(owner, "__qualname__", repr(owner))
