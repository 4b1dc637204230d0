"""Pools: what `configs/pools.yaml` declares, and what of it is really here.

`parse_pools` turns a marked tree into `Pool`s; every mistake becomes a SourceError at its place, all of them
at once. `ready_pools` asks an injected inventory which devices exist, and gives each pool either device names
or the reason why it has none. No file and no driver is touched here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from typing import Annotated, Literal, Protocol

from pydantic import Field, ValidationError
from pydantic.types import Strict

from harness.errors import Mark, SourceError, SourceErrors
from harness.suites import MarkedDict
from harness.suites.diagnose import source_errors
from harness.suites.fields import Model, Slug, Text
from harness.suites.wording import Location, dotted, show, suggest

# More slots or devices than any one machine has: a typo such as 20000 should not become 20000 lock files.
Count = Annotated[int, Strict(), Field(ge=1, le=1024)]


class ExecutorKind(StrEnum):
    """What starts the jobs of a pool."""

    LOCAL = "local"
    SLURM = "slurm"
    GITHUB = "github"


class Pool(Model):
    """Runners of one kind as declared: `slots` for CPU pools, `gpu` with `devices` (a node) for GPU pools."""

    executor: ExecutorKind
    gpu: Slug | None = None
    slots: Count | None = None
    devices: Count | Literal["nvml"] | None = None
    nodes: Count = 1
    partition: Text | None = None
    gres: Text | None = None
    labels: tuple[Text, ...] = ()


class DeviceInventory(Protocol):
    """The GPUs of this machine; `containment.NvmlInventory` is one."""

    def devices(self, gpu: str) -> Sequence[str]:
        """Names `gpu:INDEX` of the devices of that kind."""

    def unavailable(self) -> str | None:
        """Why no device at all is known, as a phrase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyPool:
    """A pool as jobs can use it now. `devices` are names such as `cpu:0`, `gpu:3`; `empty` says why none."""

    name: str
    gpu: str | None = None
    devices: tuple[str, ...] = ()
    empty: str | None = None

    def describe(self) -> str:
        """The clause of a refusal: what this pool has, and why not more."""
        if self.empty is not None:
            return f"pool {self.name} {self.empty}"
        return f"pool {self.name} has {len(self.devices)}"


def parse_pools(tree: object, *, mark: Mark) -> dict[str, Pool]:
    """The pools by name; `tree` is what `load_yaml` gave and `mark` the place of its start.

    Raises SourceErrors with every unknown key, wrong value and contradiction at its place.
    """
    declared = tree.get("pools") if isinstance(tree, MarkedDict) else None
    if not isinstance(tree, MarkedDict) or not isinstance(declared, MarkedDict) or not declared:
        raise SourceErrors([SourceError(mark, "allowed: one mapping 'pools:' of pool names to pools")])
    errors = [
        SourceError(tree.key_marks[key], f"unknown key {show(key)}{suggest(key, ['pools'])}", field=key)
        for key in tree
        if key != "pools"
    ]
    pools: dict[str, Pool] = {}
    for name, entry in declared.items():
        read = _read_pool(entry, mark=declared.value_marks[name], name=name)
        if isinstance(read, Pool):
            pools[name] = read
        else:
            errors += read
    errors += [
        SourceError(declared.value_marks[name], message, field=dotted(("pools", name)))
        for name, message in _contradictions(pools)
    ]
    if errors:
        raise SourceErrors(errors)
    return pools


def _read_pool(entry: object, *, mark: Mark, name: str) -> Pool | list[SourceError]:
    """One pool, or what is wrong with it."""
    where: Location = ("pools", name)
    if not isinstance(entry, MarkedDict):
        message = (
            f"{show(entry)} is not allowed here; allowed: a mapping such as {{executor: local, slots: 2}}"
        )
        return [SourceError(mark, message, field=dotted(where))]
    try:
        return Pool.model_validate(entry)
    except ValidationError as error:
        return source_errors(error, tree=entry, model=Pool, prefix=where)


def _contradictions(pools: Mapping[str, Pool]) -> Iterable[tuple[str, str]]:
    """Pools whose keys do not make a pool, and local pools that would hand out the same devices."""
    for name, pool in pools.items():
        if pool.gpu is None and (pool.slots is None or pool.devices is not None):
            yield name, "a pool without 'gpu' is a CPU pool: it needs 'slots' and has no 'devices'"
        if pool.gpu is not None and (pool.devices is None or pool.slots is not None):
            yield name, "a pool with 'gpu' needs 'devices' (a number, or nvml) and has no 'slots'"
        if pool.devices == "nvml" and pool.executor is not ExecutorKind.LOCAL:
            yield name, f"'devices: nvml' asks this machine, so it cannot go with executor {pool.executor}"
    local = [(name, pool) for name, pool in pools.items() if pool.executor is ExecutorKind.LOCAL]
    for (first, one), (second, other) in combinations(local, 2):
        numbered = isinstance(one.devices, int) or isinstance(other.devices, int)
        if one.gpu == other.gpu or (one.gpu and other.gpu and numbered):
            yield second, f"hands out the same devices of this machine as pool {first}"


def ready_pools(pools: Mapping[str, Pool], inventory: DeviceInventory) -> dict[str, ReadyPool]:
    """Each pool with the devices that this machine can give it, or with the reason why none."""
    return {name: _ready(name, pool, inventory) for name, pool in sorted(pools.items())}


def _ready(name: str, pool: Pool, inventory: DeviceInventory) -> ReadyPool:
    if pool.executor is not ExecutorKind.LOCAL:
        reason = f"needs executor {pool.executor}, which this release cannot drive"
        return ReadyPool(name=name, gpu=pool.gpu, empty=reason)
    if pool.gpu is None:
        return ReadyPool(name=name, devices=tuple(f"cpu:{slot}" for slot in range(pool.slots or 0)))
    if isinstance(pool.devices, int):
        return ReadyPool(name=name, gpu=pool.gpu, devices=tuple(f"gpu:{i}" for i in range(pool.devices)))
    devices = tuple(inventory.devices(pool.gpu))
    why = inventory.unavailable() or f"this machine has no {pool.gpu}"
    return ReadyPool(
        name=name, gpu=pool.gpu, devices=devices, empty=None if devices else f"has 0 devices: {why}"
    )
