"""`inject(target="sglang")`: the real package answers for the injected topology.

Called by `shim.inject`. Inside the block the package's `get_server_args()` answers the seed, `get_parallel()` the
live topology, and the worker carries the package's own ParallelState, where the release has one. One process is one
rank at a time; everything that the block replaced is back after any exit.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, cast

from harness.errors import InjectionError
from harness.topology.config import ParallelConfig
from harness.topology.injections import Injection
from harness.topology.shim import InjectedGroup, InjectedWorker
from harness.topology.state import ParallelState
from harness.topology.targets import sglang_live, sglang_published
from harness.topology.targets.detect import Generation, SglangTarget, detect
from harness.topology.targets.frames import CONTEXT_MODULE, close_frame, open_frame
from harness.topology.targets.group import PackageGroup
from harness.topology.targets.thread_guard import guard

__all__ = ["Generation", "SglangTarget", "SglangWorker", "detect", "inject_sglang"]


class Adapter(Protocol):
    """What one generation of the package needs: the functions of its module."""

    def publish(self, seed: ParallelConfig, *, rank: int) -> Any: ...

    def live_values(self, live: ParallelState, dcp_group: object) -> dict[str, Any]: ...

    def package_state(self, ps: ParallelState) -> Any: ...


ADAPTERS: dict[Generation, Adapter] = {
    Generation.LIVE: sglang_live,
    Generation.PUBLISHED: cast(Adapter, sglang_published),
}


class SglangWorker(InjectedWorker):
    """The injected worker with the package's own objects beside harness's.

    `server_args` is the package's ServerArgs that carries the seed, `package_ps` its ParallelState (None in
    releases that have none), `package` which release it is.
    """

    __slots__ = ("package", "package_ps", "server_args")

    def __init__(
        self,
        injection: Injection,
        worker: InjectedWorker,
        *,
        package: SglangTarget,
        server_args: Any,
        package_ps: Any,
    ) -> None:
        super().__init__(injection, rank=worker.rank, seed=worker.seed, ps=worker.ps)
        self.package = package
        self.server_args = server_args
        self.package_ps = package_ps


@contextmanager
def inject_sglang(injection: Injection, worker: InjectedWorker) -> Iterator[SglangWorker]:
    """Raises InjectionError where the package is not importable, refuses the topology, or is in use by another
    thread or task."""
    package = detect()
    adapter = ADAPTERS[package.generation]
    frame = open_frame(injection)
    try:
        server_args = _install(adapter, injection, worker, package)
        yield SglangWorker(
            injection,
            worker,
            package=package,
            server_args=server_args,
            package_ps=adapter.package_state(worker.ps),
        )
    finally:
        close_frame(frame)


def _install(adapter: Adapter, injection: Injection, worker: InjectedWorker, package: SglangTarget) -> Any:
    """Publish the seed, override what is live, guard it. Returns the published server args."""
    parallel = importlib.import_module(CONTEXT_MODULE).get_parallel()
    live = injection.live
    group = PackageGroup(cast(InjectedGroup, injection.dcp_group).ranks, live.attn_dcp_rank)
    parallel._overrides = {}  # of an outer block: every name is stated anew
    try:
        server_args = adapter.publish(worker.seed, rank=worker.rank)
        with parallel.override(**adapter.live_values(live, group)):
            overrides = dict(parallel._overrides)
    except (ValueError, AssertionError) as error:
        raise InjectionError(f"{package} refuses this topology: {error}") from error
    # Kept past the package's own scope, which would restore by order of nesting; the frame restores instead.
    parallel._overrides = overrides
    guard(parallel)
    return server_args
