"""Run in an SGLang environment: does with `inject(target="sglang")` what its tests ask, and prints what was seen.

One process for all of it, since the package takes long to import. Each function below is one observation.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import json
import os
import threading
from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any
from unittest.mock import patch

import sglang.srt.runtime_context as context
import sglang.srt.server_args
from sglang.srt.runtime_context import get_parallel, get_server_args

import harness.topology
from harness.errors import InjectionError
from harness.topology import ParallelConfig, ParallelState, inject
from harness.topology.targets.sglang import SglangWorker, detect

FOUR = ParallelConfig(tp_size=8, dcp_size=4)
HELD = get_parallel()
DCP_NAMES = ("dcp_enabled", "attn_dcp_size", "attn_dcp_rank", "dcp_size", "dcp_rank")
# Topologies that use each axis, and one that uses most.
CONFIGS = [
    ParallelConfig(tp_size=4, dcp_size=2, pp_size=2),
    ParallelConfig(tp_size=8, dcp_size=2, dp_size=2, enable_dp_attention=True),
    ParallelConfig(tp_size=8, attn_cp_size=2, dcp_size=4, moe_dp_size=2),
    ParallelConfig(tp_size=8, ep_size=2, moe_dp_size=2),
    ParallelConfig(tp_size=8, ep_size=8, dp_size=4, enable_dp_attention=True, dcp_size=2),
    ParallelConfig(),
]


def in_package() -> Any:
    return inject(FOUR, rank=5, target="sglang")


def dcp(size: int) -> ParallelState:
    return ParallelState.from_config(ParallelConfig(tp_size=8, dcp_size=size), tp_rank=5)


def process_state() -> list[Any]:
    """Everything an injection could leave behind: by identity where it is an object, by value where it is not."""
    parallel, whole = context._PARALLEL, context._CONTEXT
    slots = {n: object.__getattribute__(parallel, n) for n in type(parallel).__slots__}
    slots = {n: (id(value), repr(value)) for n, value in slots.items()}
    kept = {n: id(getattr(whole, n)) for n in type(whole).__slots__}
    return [
        *(
            type(parallel).__qualname__,
            id(parallel),
            id(whole),
            repr(slots),
            kept,
            list(whole._overrides_log),
        ),
        whole.flags.capture.enable_torch_compile,
        dict(os.environ),
    ]


def attempt(read: Callable[[], Any]) -> str:
    """What a read answers, or the name of what it raises."""
    try:
        return repr(read())
    except Exception as error:  # noqa: BLE001 - its name is the answer
        return type(error).__name__


def in_thread(work: Callable[[], Any]) -> Any:
    answer: list[Any] = []
    thread = threading.Thread(target=lambda: answer.append(attempt(work)))
    thread.start()
    thread.join()
    return answer[0]


def sources_apart() -> list[Any]:
    seen = []
    for seed, ps, live in permutations((8, 4, 2)):
        given = {"seed": ParallelConfig(tp_size=8, dcp_size=seed), "ps": dcp(ps), "live": dcp(live)}
        with inject(FOUR, rank=5, target="sglang", **given) as worker:
            package_ps = worker.package_ps
            number = getattr(package_ps, "attn_dcp_size", getattr(package_ps, "dcp_size", None))
            found = [get_server_args().dcp_size, number, get_parallel().attn_dcp_size]
            seen.append(
                {
                    "given": [seed, ps, live],
                    "found": found,
                    "live": [getattr(get_parallel(), n) for n in DCP_NAMES],
                }
            )
    return seen


def every_axis() -> list[str]:
    """Names under which the package answers something else than the state of the rank."""
    wrong = []
    for config in CONFIGS:
        for rank in range(config.world_size):
            with inject(config, rank=rank, target="sglang") as worker:
                answers = expected(worker)
                wrong += [
                    f"{config} rank {rank}: {name} is {getattr(get_parallel(), name)}, not {value}"
                    for name, value in answers.items()
                    if getattr(get_parallel(), name) != value
                ]
    return wrong


def expected(worker: SglangWorker) -> dict[str, object]:
    """Counted out from the place of the rank: whoever shares all other coordinates is in the group."""
    ps, seed = worker.ps, worker.seed
    kinds = ("tp", "pp", "attn_tp", "attn_cp", "attn_dp", "moe_ep", "moe_dp")
    answers: dict[str, object] = {
        f"{k}_{p}": getattr(ps, f"{k}_{p}") for k in kinds for p in ("size", "rank")
    }
    per_expert = [r for r in range(seed.tp_size) if _moe_place(r, seed) == _moe_place(ps.tp_rank, seed)]
    return answers | {
        "moe_tp_size": len(per_expert),
        "moe_tp_rank": per_expert.index(ps.tp_rank),
        "attn_dcp_size": ps.attn_dcp_size,
        "attn_dcp_rank": ps.attn_dcp_rank,
        "dcp_enabled": ps.attn_dcp_size > 1,
    }


def _moe_place(tp_rank: int, config: ParallelConfig) -> tuple[int, int]:
    state = ParallelState.from_config(config, tp_rank=tp_rank)
    return state.moe_dp_rank, state.moe_ep_rank


def dcp_off() -> dict[str, str]:
    with in_package(), inject(ParallelConfig(tp_size=2), rank=1, target="sglang"):
        return {
            name: attempt(lambda name=name: getattr(get_parallel(), name))
            for name in (*DCP_NAMES, "dcp_group")
        }


def group() -> dict[str, Any]:
    with in_package():
        it = get_parallel().dcp_group
        return {
            "ranks": list(it.ranks),
            "rank": it.rank,
            "rank_in_group": it.rank_in_group,
            "world_size": it.world_size,
            "len": len(it),
            "collective": attempt(lambda: it.all_gather(1)),
            "copies": hasattr(it, "__deepcopy__"),
        }


def worker() -> dict[str, Any]:
    given = ParallelConfig(tp_size=8, dcp_size=2, pp_size=2, ep_size=4)
    with inject(given, rank=13, target="sglang") as it:
        sizes = ("tp_size", "dcp_size", "pp_size", "ep_size")
        return {
            "is published": it.server_args is get_server_args(),
            "is the package's": type(it.server_args) is sglang.srt.server_args.ServerArgs,
            "sizes": [getattr(it.server_args, name) for name in sizes],
            "ps": None
            if it.package_ps is None
            else [it.package_ps.tp_rank, it.package_ps.pp_rank, it.package_ps.gpu_id],
            "harness": [harness.topology.get_parallel().dcp_size, it.dcp_size, it.rank, it.seed == given],
            "package": str(it.package),
        }


def nesting() -> list[int]:
    seen = []
    with inject(FOUR, target="sglang"):
        seen.append(get_parallel().dcp_size)
        with inject(ParallelConfig(tp_size=8, dcp_size=8), target="sglang"):
            seen.append(get_parallel().dcp_size)
            with get_parallel().override(dcp_size=3):
                seen.append(get_parallel().dcp_size)
            seen.append(get_parallel().dcp_size)
        seen += [get_parallel().dcp_size, get_server_args().dcp_size]
    return seen


def restored() -> dict[str, bool]:
    """Each way out leaves the process as it was."""
    outcome = {}
    for way in (
        normal,
        raising,
        closed_generator,
        collected_generator,
        closed_out_of_order,
        refused,
        changed_inside,
    ):
        before = process_state()
        way()
        outcome[way.__name__] = process_state() == before
    return outcome


def restored_with_something_published() -> dict[str, bool]:
    with in_package():
        return restored()


def normal() -> None:
    with in_package():
        get_parallel().tp_rank  # noqa: B018


def raising() -> None:
    try:
        with in_package():
            raise KeyError
    except KeyError:
        pass


def block(config: ParallelConfig = FOUR) -> Iterator[None]:
    with inject(config, target="sglang"):
        yield


def closed_generator() -> None:
    it = block()
    next(it)
    it.close()


def collected_generator() -> None:
    it = block()
    next(it)
    del it
    gc.collect()


def closed_out_of_order() -> None:
    outer = block()
    next(outer)
    with inject(ParallelConfig(tp_size=8, dcp_size=8), target="sglang"):
        outer.close()
        assert get_parallel().dcp_size == 8
        assert get_server_args().dcp_size == 8


def refused() -> None:
    """The package does not accept what is injected."""
    with patch.object(context.ParallelContext, "override", side_effect=ValueError("no")):
        try:
            with in_package():
                raise AssertionError
        except InjectionError:
            pass


def changed_inside() -> None:
    with in_package():
        context.get_context().override("test", dcp_comm_backend="a2a", page_size=32)
        context.get_context().flags.capture.enable_torch_compile = True
        context.reset_context()


def threads() -> dict[str, str]:
    with in_package():
        copied = contextvars.copy_context()
        inside = {
            "a function imported by name": in_thread(lambda: get_parallel().tp_rank),
            "an object held from before": in_thread(lambda: HELD.dcp_size),
            "the module": in_thread(lambda: context.get_parallel().attn_dcp_size),
            "an override": in_thread(lambda: HELD.override(tp_rank=1).__enter__()),
            "a second block": in_thread(lambda: in_package().__enter__()),
            "the context copied": in_thread(lambda: copied.run(lambda: get_parallel().tp_rank)),
            "its own": attempt(lambda: HELD.tp_rank),
            "whether it is a context": in_thread(lambda: isinstance(HELD, context.ParallelContext)),
        }
    return inside | {"afterwards": in_thread(read_without_a_block)}


def read_without_a_block() -> str:
    """Whatever the package says, it is not ours."""
    return str(attempt(lambda: HELD.tp_rank) != "InjectionError")


def tasks() -> dict[str, str]:
    async def read() -> str:
        return attempt(lambda: get_parallel().tp_rank)

    async def main() -> dict[str, str]:
        go = asyncio.Event()

        async def sibling() -> dict[str, str]:
            await go.wait()
            return {"sibling": await read(), "sibling's block": attempt(lambda: in_package().__enter__())}

        other = asyncio.create_task(sibling())
        await asyncio.sleep(0)
        with in_package():
            go.set()
            return {"own": await read(), "child": await asyncio.create_task(read()), **await other}

    return asyncio.run(main())


OBSERVATIONS = (
    sources_apart,
    every_axis,
    dcp_off,
    group,
    worker,
    nesting,
    restored,
    restored_with_something_published,
    threads,
    tasks,
)


def main() -> None:
    with in_package():  # what the package imports at first use is imported now
        pass
    seen: dict[str, Any] = {"target": [str(detect()), str(detect().generation)]}
    for observe in OBSERVATIONS:
        seen[observe.__name__] = observe()
    print(f"\nSEEN {json.dumps(seen)}", flush=True)


if __name__ == "__main__":
    main()
