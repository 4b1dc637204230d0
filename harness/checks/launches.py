"""From what a suite declares to what is launched: shared by the sessions of jobs and by recording a baseline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, Self, TypeVar

from harness.engines import LaunchSpec, PairSpec
from harness.engines.arguments import ArgValue
from harness.suites import CheckParams, EngineSpec, Job

Spec = LaunchSpec | PairSpec


class _Wanting(Protocol):
    def wanting(self, *, model: str | None, dtype: str | None) -> Self: ...


AnySpec = TypeVar("AnySpec", bound=_Wanting)


def to_launch(
    engine: EngineSpec, *, args: Mapping[str, ArgValue] | None = None, faults: tuple[str, ...] = ()
) -> LaunchSpec:
    """The launch of a declared engine, with more arguments on top of the suite's."""
    parallel = engine.parallel.config()
    return LaunchSpec(
        kind=engine.kind.value,
        model=engine.model,
        parallel=parallel,
        args={**engine.args, **(args or {})},
        env=engine.env,
        launch_timeout_s=engine.launch_timeout,
        # A fault is a regression of the engine under test; with dcp 1 there is nothing to regress.
        faults=faults if parallel.dcp_size > 1 else (),
    )


def to_test(job: Job, *, args: Mapping[str, ArgValue], faults: tuple[str, ...]) -> Spec | None:
    """The launch of the job's engine or pair under test; None where it declares none."""
    if job.engine is not None:
        return to_launch(job.engine, args=args, faults=faults)
    if job.prefill is None or job.decode is None:
        return None
    # Handing KV over is the work of both, also of a prefill engine at dcp 1.
    prefill, decode = (to_launch(side, args=args).with_faults(faults) for side in (job.prefill, job.decode))
    return PairSpec(prefill=prefill, decode=decode, router_args={} if job.router is None else job.router.args)


def as_check_wants(launch: AnySpec, params: CheckParams) -> AnySpec:
    """The same launch with the check's own model and dtype, if it has any."""
    return launch.wanting(model=getattr(params, "model", None), dtype=getattr(params, "dtype", None))
