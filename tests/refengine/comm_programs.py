"""Random programs of collectives, and an oracle that knows all ranks' inputs and uses no communicator.

A program is a list of `Step`s drawn from a seed. `run_program` plays one rank of it; `expected` says what
that rank must get. Inputs depend on (seed, step, rank) only, so every process can make those of every rank.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.refengine.comm import Comms, Communicator

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "int64": torch.int64}
VERBS = (
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "all_reduce",
    "broadcast",
    "broadcast_bytes",
    "barrier",
)
# The kind under which a verb is counted, where it is not its own name.
KINDS = {"broadcast_bytes": "broadcast"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A topology, a backend, and what its ranks do.

    `integers` keeps values small, so that any sum is exact. With `adopt` ranks know the plumbing by its file
    descriptors alone, as spawned ones do.
    """

    backend: str = "shm"
    program: str = "random"
    tp: int = 2
    dcp: int = 1
    seed: int = 0
    steps: int = 20
    slot_bytes: int = 4096
    integers: bool = False
    adopt: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One call on one group; `shape` is what a rank passes, `dim` may be negative."""

    group: str
    verb: str
    shape: tuple[int, ...]
    dim: int
    dtype: str
    contiguous: bool
    src: int


def draw_steps(scenario: Scenario) -> list[Step]:
    rng = random.Random(scenario.seed)
    return [_draw_step(rng, scenario) for _ in range(scenario.steps)]


def _draw_step(rng: random.Random, scenario: Scenario) -> Step:
    group = rng.choice(("tp", "dcp"))
    size = scenario.tp if group == "tp" else scenario.dcp
    verb = rng.choice(VERBS)
    # Now and then longer than a slot, now and then empty.
    shape = [rng.choice((0, 1, 2, 3, 5, 7, 40)) for _ in range(rng.randint(1, 3))]
    dim = rng.randrange(len(shape))
    if verb == "reduce_scatter":
        shape[dim] *= size
    if verb == "all_to_all":
        shape[0] = size
    return Step(
        group=group,
        verb=verb,
        shape=tuple(shape),
        dim=rng.choice((dim, dim - len(shape))),
        dtype=rng.choice(tuple(DTYPES)),
        contiguous=rng.random() < 0.5,
        src=rng.randrange(size),
    )


def make_input(scenario: Scenario, index: int, step: Step, rank: int) -> Tensor:
    """What TP rank `rank` passes in step `index`."""
    random_source = torch.Generator().manual_seed((scenario.seed * 1009 + index) * 64 + rank)
    shape = step.shape if step.contiguous else step.shape[::-1]
    if scenario.integers or step.dtype == "int64":
        x = torch.randint(-9, 10, shape, generator=random_source)
    else:
        x = torch.randn(shape, generator=random_source)
    x = x.to(DTYPES[step.dtype])
    return x if step.contiguous else x.permute(*reversed(range(x.ndim)))


def _payload(scenario: Scenario, index: int, step: Step) -> bytes:
    count = sum(step.shape) * 100
    return random.Random(scenario.seed * 1009 + index).randbytes(count)


def run_program(comms: Comms, rank: int, scenario: Scenario) -> list[Tensor | bytes | None]:
    """Play rank `rank`; also asserts that no call touches what was passed to it.

    Every other step runs under `torch.inference_mode`, as a model's do and a benchmark's do not: nothing that
    a backend keeps may depend on where it was made.
    """
    results: list[Tensor | bytes | None] = []
    for index, step in enumerate(draw_steps(scenario)):
        comm = getattr(comms, step.group)
        x = make_input(scenario, index, step, rank)
        before = x.clone()
        data = _payload(scenario, index, step) if comm.rank == step.src else None
        with torch.inference_mode(index % 2 == 0):
            result = _call(comm, step, x, data)
        assert torch.equal(x, before), f"{step} changed its argument"
        results.append(result)
    return results


def _call(comm: Communicator, step: Step, x: Tensor, data: bytes | None) -> Tensor | bytes | None:
    match step.verb:
        case "all_gather":
            return comm.all_gather(x, dim=step.dim)
        case "reduce_scatter":
            return comm.reduce_scatter(x, dim=step.dim)
        case "all_to_all":
            return comm.all_to_all(x)
        case "all_reduce":
            return comm.all_reduce(x)
        case "broadcast":
            return comm.broadcast(x, src=step.src)
        case "broadcast_bytes":
            return comm.broadcast_bytes(data, src=step.src)
    comm.barrier()
    return None


def expected(scenario: Scenario, rank: int) -> list[Tensor | bytes | None]:
    """What `run_program` must return on rank `rank`, from everybody's inputs."""
    return [_expected_step(scenario, i, step, rank) for i, step in enumerate(draw_steps(scenario))]


def _expected_step(scenario: Scenario, index: int, step: Step, rank: int) -> Tensor | bytes | None:
    size = scenario.tp if step.group == "tp" else scenario.dcp
    first = rank - rank % size
    inputs = [make_input(scenario, index, step, first + i) for i in range(size)]
    match step.verb:
        case "all_gather":
            return torch.cat(inputs, dim=step.dim)
        case "reduce_scatter":
            width = step.shape[step.dim] // size
            return _sum(inputs).narrow(step.dim, (rank - first) * width, width)
        case "all_to_all":
            return torch.stack([x[rank - first] for x in inputs])
        case "all_reduce":
            return _sum(inputs)
        case "broadcast":
            return inputs[step.src]
        case "broadcast_bytes":
            return _payload(scenario, index, step)
        case _:
            return None


def _sum(inputs: list[Tensor]) -> Tensor:
    """In rank order; bf16 as one fp32 sum that is rounded once."""
    if inputs[0].dtype is not torch.bfloat16:
        total = inputs[0]
        for x in inputs[1:]:
            total = total + x
        return total
    return _sum([x.float() for x in inputs]).bfloat16()


def same(a: Tensor | bytes | None, b: Tensor | bytes | None) -> bool:
    """Bit for bit, shape and dtype included."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and a.dtype == b.dtype and bool(torch.equal(a, b))
    return type(a) is type(b) and bool(a == b)


def calls_by_kind(scenario: Scenario, group: str) -> dict[str, int]:
    """How often each kind must have been counted on `group`, kinds that were called only."""
    calls: dict[str, int] = {}
    for step in draw_steps(scenario):
        if step.group == group:
            kind = KINDS.get(step.verb, step.verb)
            calls[kind] = calls.get(kind, 0) + 1
    return calls
