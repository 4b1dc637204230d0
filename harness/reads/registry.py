"""The consumers: which functions of the real package are driven, and what kind of answer each gives.

A consumer module registers plain functions with `@consumer(...)` when it is imported; `load_consumers()` imports
them all. Nothing here imports the engine's package: a consumer does so in its own body, when it is driven.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.topology.sources import Role as Role  # for consumers: all they need is here

if TYPE_CHECKING:
    from harness.reads.stage import Stage
    from harness.topology import InjectedWorker


class Kind(StrEnum):
    """What the answer of a consumer is, and so what each source would have made of it."""

    SCALE = "scale"  # a number of ranks: the source's size
    RANK = "rank"  # a rank in its DCP group: the source's rank
    GATE = "gate"  # whether DCP is on: the source's size > 1
    BACKEND = "backend"  # whether fi_a2a is chosen: the source's `dcp_comm_backend`
    FACT = "fact"  # no source: a short text that the table spells out, driven once


# What a consumer answers: a number of ranks or a rank, an open gate, a FACT's text, None where nothing is there.
Answer = int | bool | str | None
Drive = Callable[["InjectedWorker", Role, "Stage"], Answer]

BOTH = (Role.TARGET, Role.DRAFT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """One place of the package that uses the DCP topology.

    `drives` names the real function, as `module:qualified.name`; several where releases moved it, the first
    that is there counts. Where none is there, the consumer is absent in that release.
    """

    name: str
    kind: Kind
    roles: tuple[Role, ...]
    drives: tuple[str, ...]
    drive: Drive


_consumers: dict[str, Consumer] = {}


def consumer(
    name: str, *, kind: Kind, drives: str | tuple[str, ...], roles: tuple[Role, ...] = BOTH
) -> Callable[[Drive], Drive]:
    """Register the decorated function as the consumer `name` ("allocation.page_size").

    It is called as `(worker, role, stage)` inside `inject(..., target="sglang")`, once for each assignment of
    numbers to sources, and returns what came out. It raises what the package raises: that is an error of the
    row, never a finding.
    """

    def register(drive: Drive) -> Drive:
        if name in _consumers:
            raise UsageError(f"consumer {name!r} is registered twice")
        paths = (drives,) if isinstance(drives, str) else drives
        _consumers[name] = Consumer(name=name, kind=kind, roles=roles, drives=paths, drive=drive)
        return drive

    return register


def load_consumers() -> Mapping[str, Consumer]:
    """Every consumer, by name, in order of module and place in it."""
    from harness.reads import consumers

    for module in pkgutil.iter_modules(consumers.__path__):
        importlib.import_module(f"{consumers.__name__}.{module.name}")
    return _consumers
